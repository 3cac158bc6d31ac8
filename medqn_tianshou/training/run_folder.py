"""The folder of a run: settings, progress, policies and summary, in common file formats."""

import csv
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Self

import psutil
import torch

from medqn_tianshou.files.atomic import atomic_write, write_json_atomically
from medqn_tianshou.files.lock import InUseError, ProcessLock
from medqn_tianshou.training.memory import memory_limit

_PACKAGES = (
    "medqn-tianshou",
    "tianshou",
    "torch",
    "numpy",
    "gymnasium",
    "envpool",
    "ale-py",
    "opencv-python",
)

_LOGS = ("progress.csv", "episodes.csv", "events.out.tfevents.*")
_LOCK = "run.lock"


class RunFolderError(ValueError):
    """A run folder that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class ProgressRow:
    """A line of ``progress.csv``. MB are 10**6 bytes."""

    env_step: int
    gradient_step: int
    eval_return_mean: float | None
    """None in experiments without evaluation, which report the training return."""
    eval_return_std: float | None
    train_return: float | None
    """Mean return of the last training episodes; None before the first one ended."""
    steps_per_s: float | None
    """Training speed since the previous line, evaluation excluded."""
    rss_mb: float
    buffer_mb: float


class RunFolder:
    """Creates a run's folder and writes its files.

    :param path: the folder; it must not exist yet.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self._begin(path)
        self._write_headings()

    def _begin(self, path: Path) -> None:
        self.path = path
        self.rows: list[ProgressRow] = []
        self._tables: dict[str, IO[str]] = {}
        self._lock = ProcessLock(path / _LOCK)
        try:
            self._lock.acquire()  # until it is released, or this process ends
        except InUseError as error:
            text = f"is in use by process {error.owner}; wait for it or end it"
            raise RunFolderError(text) from None

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Open the folder of a run to resume.

        :raises RunFolderError: if another process uses it.
        """
        run = cls.__new__(cls)
        run._begin(path)
        return run

    def await_event_file(self) -> None:
        """Wait until a new event file would sort last: TensorBoard sorts by seconds in names."""
        names = [path.name for path in self.path.glob("events.out.tfevents.*")]
        newest = max((int(name.split(".")[3]) for name in names), default=0)
        while time.time() < newest + 1 < time.time() + 2:  # not for a clock that was set back
            time.sleep(0.02)

    def unlock(self) -> None:
        """Let other processes in."""
        self._close_tables()
        self._lock.release()

    def discard(self) -> None:
        """Delete the folder of a run that could not start."""
        self.unlock()
        shutil.rmtree(self.path)

    def _write_headings(self) -> None:
        self._append_to("progress.csv", list(ProgressRow.__dataclass_fields__))
        self._append_to("episodes.csv", ["env_step", "return", "length"])

    def log_sizes(self) -> dict[str, int]:
        """Return the size of each log after syncing it to disk."""
        sizes = {}
        for path in self.logs():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                sizes[path.name] = file.seek(0, os.SEEK_END)
        return sizes

    def logs(self) -> list[Path]:
        """The files that grow with the run: both tables, and TensorBoard's event files."""
        return [path for name in _LOGS for path in sorted(self.path.glob(name))]

    def rewind(self, logs: list[Path], sizes: dict[str, int]) -> None:
        """Truncate logs to the sizes of a checkpoint, so that no step is logged twice.

        :param logs: the logs to truncate; those without a size are newer, and are deleted.
        :param sizes: what :meth:`log_sizes` returned then.
        """
        self._close_tables()
        for path in logs:
            if path.name not in sizes:
                path.unlink()
            elif path.stat().st_size > sizes[path.name]:
                os.truncate(path, sizes[path.name])
        with (self.path / "progress.csv").open(newline="") as file:
            self.rows = [_parse_row(row) for row in csv.DictReader(file)]

    def start_over(self) -> None:
        """Empty all logs."""
        self._close_tables()
        for path in self.logs():
            path.unlink()
        self.rows = []
        self._write_headings()

    @classmethod
    def create(cls, logdir: Path, *names: str) -> "RunFolder":
        """Create a new folder ``logdir/names.../time``; names are e.g. task, algorithm, seed."""
        parent = logdir.joinpath(*names)
        stem = time.strftime("%Y%m%d-%H%M%S")
        for suffix in ("", *(f"-{count}" for count in range(2, 100))):
            try:
                return cls(parent / (stem + suffix))
            except FileExistsError:
                if not parent.is_dir():
                    raise
        raise FileExistsError(f"{parent} holds a hundred runs of this second")

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        write_json_atomically(self.path / name, content)

    def save_policy(self, name: str, policy: torch.nn.Module) -> None:
        """Save a policy's parameters, whole or not at all."""
        with atomic_write(self.path / name) as file:
            torch.save(policy.state_dict(), file)

    def add_row(self, row: ProgressRow) -> None:
        """Append a line to ``progress.csv``."""
        self.rows.append(row)
        self._append_to("progress.csv", list(asdict(row).values()))

    def add_episode(self, env_step: int, episode_return: float, length: int) -> None:
        """Append a training episode to ``episodes.csv``."""
        self._append_to("episodes.csv", [env_step, f"{episode_return:.10g}", length])

    def _append_to(self, name: str, values: list[Any]) -> None:
        # They stay open: opening a file takes longer than an episode of a small game.
        if name not in self._tables:
            self._tables[name] = (self.path / name).open("a", newline="", buffering=1)
        csv.writer(self._tables[name], lineterminator="\n").writerow(values)

    def _close_tables(self) -> None:
        for file in self._tables.values():
            with suppress(OSError):  # a full disk, which was reported when the row was written
                file.close()
        self._tables.clear()


def _parse_row(texts: dict[str, str]) -> ProgressRow:
    values: dict[str, Any] = {
        name: float(texts[name]) if texts[name] else None for name in ProgressRow.__annotations__
    }
    steps = {name: int(texts[name]) for name in ("env_step", "gradient_step")}
    return ProgressRow(**{**values, **steps})


def describe_run() -> dict[str, Any]:
    """Describe what a result depends on: command, versions, commit, machine, time."""
    limit = memory_limit()
    return {
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {"python": platform.python_version(), **_package_versions()},
        "commit": _commit(),
        "hardware": {
            "platform": platform.platform(),
            "cpu": _cpu_name(),
            "cpu_cores": psutil.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "memory_limit_bytes": limit.nbytes,
            "memory_limit_source": limit.source,
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
    }


def _package_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        versions[package] = None
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _commit() -> str | None:
    """The commit that the package is run from, with ``+changes`` if files differ from it."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():  # installed, perhaps into the repository of someone else
        return None

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        changes = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changes else commit


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
