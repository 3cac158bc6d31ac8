"""The folder of a run: settings, progress, policies, summary. Everything in it is plain to read."""

import csv
import fcntl
import json
import os
import platform
import shlex
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Self

import psutil
import torch

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
    """None in experiments without evaluation, which go by the training return."""
    eval_return_std: float | None
    train_return: float | None
    """Mean return of the last training episodes, if any ended yet."""
    steps_per_s: float | None
    """Training speed since the line before, evaluation excluded."""
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
        self._lock: IO[str] | None = None
        self.lock()

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Open the folder of a run that is to go on.

        :param path: the folder.
        :raises RunFolderError: if another process works in it.
        """
        run = cls.__new__(cls)
        run._begin(path)
        return run

    def lock(self) -> None:
        """Keep other processes out until :meth:`unlock`, or until this process ends."""
        file = (self.path / _LOCK).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise RunFolderError(f"is in use by process {owner}; wait for it or end it") from None
        except OSError:  # a file system without locks
            file.close()
            return
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._lock = file

    def await_event_file(self) -> None:
        """Wait until a new event file follows the others: TensorBoard sorts by seconds in names."""
        names = [path.name for path in self.path.glob("events.out.tfevents.*")]
        newest = max((int(name.split(".")[3]) for name in names), default=0)
        while time.time() < newest + 1 < time.time() + 2:  # not for a clock that was set back
            time.sleep(0.02)

    def unlock(self) -> None:
        """Let other processes in."""
        self._close_tables()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def discard(self) -> None:
        """Delete the folder of a run that could not begin."""
        self.unlock()
        shutil.rmtree(self.path)

    def _write_headings(self) -> None:
        self._append_to("progress.csv", list(ProgressRow.__dataclass_fields__))
        self._append_to("episodes.csv", ["env_step", "return", "length"])

    def log_sizes(self) -> dict[str, int]:
        """Return the size of each log, after it was written to the disk."""
        sizes = {}
        for path in self.logs():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                sizes[path.name] = file.seek(0, os.SEEK_END)
        return sizes

    def logs(self) -> list[Path]:
        """The files that grow with the run: both tables, and TensorBoard's."""
        return [path for name in _LOGS for path in sorted(self.path.glob(name))]

    def rewind(self, logs: list[Path], sizes: dict[str, int]) -> None:
        """Cut logs back to what they were, so that none tells a step twice.

        :param logs: the logs there are; those that were not there then are deleted.
        :param sizes: what :meth:`log_sizes` returned.
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
        """Make a new folder ``logdir/names.../time`` that no other run has.

        :param logdir: where all runs are.
        :param names: e.g. task, algorithm, seed.
        """
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
        self._replace(name, lambda path: path.write_text(json.dumps(content, indent=2) + "\n"))

    def save_policy(self, name: str, policy: torch.nn.Module) -> None:
        """Save a policy's parameters, whole or not at all."""
        self._replace(name, lambda path: torch.save(policy.state_dict(), path))

    def add_row(self, row: ProgressRow) -> None:
        """Append a line to ``progress.csv``."""
        self.rows.append(row)
        self._append_to("progress.csv", list(asdict(row).values()))

    def add_episode(self, env_step: int, episode_return: float, length: int) -> None:
        """Append a training episode to ``episodes.csv``."""
        self._append_to("episodes.csv", [env_step, f"{episode_return:.10g}", length])

    def _append_to(self, name: str, values: list[Any]) -> None:
        # They stay open: an episode of a small game is over sooner than a file is opened.
        if name not in self._tables:
            self._tables[name] = (self.path / name).open("a", newline="", buffering=1)
        csv.writer(self._tables[name], lineterminator="\n").writerow(values)

    def _close_tables(self) -> None:
        for file in self._tables.values():
            with suppress(OSError):  # a full disk, which was reported when the row was written
                file.close()
        self._tables.clear()

    def _replace(self, name: str, write: Any) -> None:
        aside = self.path / f".{name}.part"
        write(aside)
        aside.replace(self.path / name)


def _parse_row(texts: dict[str, str]) -> ProgressRow:
    values: dict[str, Any] = {
        name: float(texts[name]) if texts[name] else None for name in ProgressRow.__annotations__
    }
    steps = {name: int(texts[name]) for name in ("env_step", "gradient_step")}
    return ProgressRow(**{**values, **steps})


def describe_run() -> dict[str, Any]:
    """Tell what a reader needs to judge a result: command, versions, machine, time."""
    limit = memory_limit()
    return {
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {"python": platform.python_version(), **_package_versions()},
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
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
