"""How much memory a run uses, and how much it may use. One MB is 10**6 bytes throughout."""

import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    import torch

MB = 10**6
# cgroup v1 writes "no limit" as the largest multiple of the page size.
_NO_LIMIT = 2**60


def parse_bytes(text: str) -> int:
    """Parse a size such as ``800M``, ``1.5G``, ``512MiB`` or ``1000000`` (bytes).

    K, M, G and T are powers of 1000; Ki, Mi, Gi and Ti of 1024.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", text.upper())
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is not a size; write for example 800M, 1.5G or 512MiB")
    base = 1024 if match[3] else 1000
    size = float(match[1]) * base ** " KMGT".index(match[2] or " ")
    if size > sys.maxsize:
        raise ValueError(f"{text[:20]!r} is more than any machine has; write for example 800M")
    return int(size)


def format_bytes(count: int) -> str:
    """Format a number of bytes, e.g. ``707.5 MB``."""
    for unit, size, digits in ("TB", 10**12, 2), ("GB", 10**9, 2), ("MB", MB, 1), ("kB", 10**3, 1):
        if count >= size:
            return f"{count / size:.{digits}f} {unit}"
    return f"{count} B"


@dataclass(frozen=True, kw_only=True)
class MemoryLimit:
    """The memory limit of the process and its children, and its source.

    :param available: the free part of it.
    """

    nbytes: int
    available: int
    source: str


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """Find the limit with the least free memory: the container's (cgroup v2, v1) or the host's.

    :param root: where ``proc`` and ``sys`` are mounted.
    """
    host = psutil.virtual_memory()
    limits = [MemoryLimit(nbytes=host.total, available=host.available, source="host")]
    limits += filter(None, map(_read_cgroup, _cgroup_folders(root)))
    return min(limits, key=lambda limit: limit.available)


def _cgroup_folders(root: Path) -> list[Path]:
    """The folders of the process's memory cgroups and all their parents: any may set a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            relative = Path(path.lstrip("/"))
            folders += [mount / relative, *(mount / parent for parent in relative.parents)]
    return folders


def _read_cgroup(folder: Path) -> MemoryLimit | None:
    for version, limit_file, usage_file, cache_key in (
        ("v2", "memory.max", "memory.current", "inactive_file"),
        ("v1", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            text = (folder / limit_file).read_text().strip()
            if text == "max" or int(text) >= _NO_LIMIT:
                continue
            used = int((folder / usage_file).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        # The kernel drops cached files before it kills a process, so they do not count as used.
        used -= int(stat.get(cache_key, 0))
        return MemoryLimit(
            nbytes=int(text), available=max(int(text) - used, 0), source=f"cgroup {version}"
        )
    return None


@dataclass(frozen=True, kw_only=True)
class MemoryUsage:
    """One measurement, in bytes; those of tensors on the CUDA device are None without one."""

    rss: int
    peak_rss: int
    children_rss: int
    buffer: int
    cuda: int | None
    peak_cuda: int | None


class MemoryMonitor:
    """Measures the memory of this process and logs it to TensorBoard.

    :param buffer_nbytes: returns the bytes of the replay buffer.
    :param device: the device of the networks.
    """

    def __init__(
        self, buffer_nbytes: Callable[[], int] = lambda: 0, *, device: "torch.device | str" = "cpu"
    ) -> None:
        self._device = device
        self._buffer_nbytes = buffer_nbytes
        self._process = psutil.Process()
        self.peak_rss = 0
        """Resident bytes at most so far; a resumed run sets what its earlier processes had."""

    def rss(self) -> int:
        """Resident bytes of this process now; the cheapest measurement."""
        rss = int(self._process.memory_info().rss)
        self.peak_rss = max(self.peak_rss, rss)
        return rss

    def measure(self) -> MemoryUsage:
        """Measure everything."""
        rss = self.rss()
        self.peak_rss = max(self.peak_rss, _high_water_mark())
        cuda = peak_cuda = None
        if str(self._device).startswith("cuda"):
            import torch

            cuda = torch.cuda.memory_allocated(self._device)
            peak_cuda = torch.cuda.max_memory_allocated(self._device)
        return MemoryUsage(
            rss=rss,
            peak_rss=self.peak_rss,
            children_rss=sum(map(_rss_or_zero, self._process.children(recursive=True))),
            buffer=self._buffer_nbytes(),
            cuda=cuda,
            peak_cuda=peak_cuda,
        )

    def log(self, writer: Any, env_step: int) -> MemoryUsage:
        """Measure, and log the tags ``memory/*`` in MB over environment steps.

        :param writer: a TensorBoard ``SummaryWriter``.
        """
        usage = self.measure()
        for tag, nbytes in asdict(usage).items():
            if nbytes is not None:
                writer.add_scalar(f"memory/{tag}_mb", nbytes / MB, global_step=env_step)
        return usage


def _high_water_mark() -> int:
    """The largest RSS so far, or 0 if the system does not report it.

    Not ``getrusage``: its peak includes the memory of the parent before it started this program.
    """
    try:
        match = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else 0


def _rss_or_zero(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has ended
        return 0
