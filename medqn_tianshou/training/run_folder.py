"""The folder of a run: settings, progress, policies and summary, in common file formats."""

import csv
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import psutil
import torch

from medqn_tianshou.files.atomic import atomic_write, write_json_atomically
from medqn_tianshou.files.lock import InUseError, ProcessLock
from medqn_tianshou.files.parameters import parameter_bytes
from medqn_tianshou.training.memory import MB, format_bytes, memory_limit
from medqn_tianshou.version import __version__

_PACKAGES = (
    "tianshou", "torch", "numpy", "gymnasium", "envpool", "ale-py",
    "opencv-python",
)  # fmt: skip
_TABLES = ("progress.csv", "episodes.csv")
_EVENTS = re.compile(r"events\.out\.tfevents\.(\d+)\..*\.\d+\.\d+")


class RunFolderError(ValueError):
    """A run folder that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class ProgressRow:
    """A line of ``progress.csv``. MB are 10**6 bytes.

    :param eval_return_mean: None in experiments without evaluation.
    :param train_return: mean return of the last training episodes; None before the first one ended.
    :param steps_per_s: training speed since the previous line, evaluation excluded.
    """

    env_step: int
    gradient_step: int
    eval_return_mean: float | None
    eval_return_std: float | None
    train_return: float | None
    steps_per_s: float | None
    rss_mb: float
    buffer_mb: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a run ended; also ``summary.json``. Returns are of evaluations, if there are any.

    :param status: ``finished``, ``interrupted`` (Ctrl-C, SIGTERM) or ``failed``.
    :param steps_per_s: training speed over the whole run, evaluation excluded.
    """

    status: str
    env_steps: int
    gradient_steps: int
    best_return: float | None
    best_env_step: int | None
    final_return: float | None
    steps_per_s: float | None
    peak_rss_mb: float
    buffer_mb: float
    buffer_transitions: int
    cpu_seconds: float | None = None
    """CPU time of all threads, over all resumes."""

    @property
    def metrics(self) -> dict[str, float | None]:
        """The figures to compare runs by."""
        names = ("best_return", "final_return", "steps_per_s", "peak_rss_mb", "buffer_mb")
        return {name: getattr(self, name) for name in names}

    def text(self, folder: Path) -> str:
        """Write the summary for the terminal; ``folder`` is the run's."""
        numbers = (self.best_return, self.final_return, self.steps_per_s)
        best, final, speed = ("none" if n is None else f"{n:,.2f}" for n in numbers)
        rss, replay = (format_bytes(round(mb * MB)) for mb in (self.peak_rss_mb, self.buffer_mb))
        at_step = "" if self.best_env_step is None else f" at env step {self.best_env_step:,}"
        return f"""\
{self.status} after {self.env_steps:,} env steps, {self.gradient_steps:,} gradient steps
  best return   {best}{at_step}
  final return  {final}
  speed         {speed} steps/s
  peak RSS      {rss}
  replay buffer {replay}, {self.buffer_transitions:,} transitions
  files         {folder}"""


def best_and_final(rows: Sequence[ProgressRow], *, evaluated: bool) -> dict[str, Any]:
    """Find the best return, its environment step, and the final return.

    The evaluation before the first update does not count.
    """
    rows = [row for row in rows if row.gradient_step > 0]
    returns = (row.eval_return_mean if evaluated else row.train_return for row in rows)
    known = [(r, row.env_step) for r, row in zip(returns, rows, strict=True) if r is not None]
    best, step = max(known, key=lambda entry: entry[0], default=(None, None))
    return {
        "best_return": best,
        "best_env_step": step,
        "final_return": known[-1][0] if known else None,
    }


class RunFolder:
    """Writes the files of a run's folder, which must exist, and locks it for this process.

    :raises RunFolderError: if another process uses the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[ProgressRow] = []
        self._tables: dict[str, IO[str]] = {}
        self._lock = ProcessLock(path / "run.lock")
        try:
            self._lock.acquire()  # until it is released, or this process ends
        except InUseError as error:
            text = f"is in use by process {error.owner}; wait for it or end it"
            raise RunFolderError(text) from None

    @classmethod
    def create(cls, logdir: Path, *names: str) -> "RunFolder":
        """Create a new folder ``logdir/names.../time``; names are e.g. task, algorithm, seed."""
        parent = logdir.joinpath(*names)
        parent.mkdir(parents=True, exist_ok=True)
        stem = time.strftime("%Y%m%d-%H%M%S")
        for suffix in ("", *(f"-{count}" for count in range(2, 100))):
            with suppress(FileExistsError):
                (parent / (stem + suffix)).mkdir()
                run = cls(parent / (stem + suffix))
                run.start_over()
                return run
        raise FileExistsError(f"{parent} contains a hundred runs of this second")

    def await_event_file(self) -> None:
        """Wait until a new event file would sort last: TensorBoard sorts by seconds in names."""
        newest = max((int(match[1]) for match in self._event_files().values()), default=0)
        while time.time() < newest + 1 < time.time() + 2:  # not for a clock that was set back
            time.sleep(0.02)

    def unlock(self) -> None:
        """Release the lock."""
        self._close_tables()
        self._lock.release()

    def discard(self) -> None:
        """Delete the folder of a run that could not start."""
        self.unlock()
        shutil.rmtree(self.path)

    def logs(self) -> list[Path]:
        """The files that grow with the run: both tables, and TensorBoard's event files."""
        tables = map(self.path.joinpath, _TABLES)
        return [*filter(Path.exists, tables), *sorted(self._event_files())]

    def _event_files(self) -> dict[Path, re.Match[str]]:
        """The files that TensorBoard's writer named; one that was renamed is the user's."""
        found = ((path, _EVENTS.fullmatch(path.name)) for path in self.path.iterdir())
        return {path: match for path, match in found if match}

    def log_sizes(self) -> dict[str, int]:
        """Return the size of each log after syncing it to disk."""
        sizes = {}
        for path in self.logs():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                sizes[path.name] = file.seek(0, os.SEEK_END)
        return sizes

    def rewind(self, logs: list[Path], sizes: dict[str, int]) -> None:
        """Truncate logs to the sizes of a checkpoint, so that no step is logged twice.

        :param logs: the logs to truncate; those without a size are newer, and are set aside.
        :param sizes: what :meth:`log_sizes` returned then.
        """
        self._close_tables()
        for path in logs:
            if path.name not in sizes:
                _set_aside(path)
            elif path.stat().st_size > sizes[path.name]:
                os.truncate(path, sizes[path.name])
        with (self.path / "progress.csv").open(newline="") as file:
            self.rows = [_parse_row(row) for row in csv.DictReader(file)]

    def start_over(self) -> None:
        """Empty all logs."""
        self._close_tables()
        for path in self.logs():
            path.unlink() if path.name in _TABLES else _set_aside(path)
        self.rows = []
        self._append_to("progress.csv", [field.name for field in fields(ProgressRow)])
        self._append_to("episodes.csv", ["env_step", "return", "length"])

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file atomically."""
        write_json_atomically(self.path / name, content)

    def save_policy(self, name: str, parameters: dict[str, torch.Tensor]) -> None:
        """Save a policy's parameters atomically."""
        with atomic_write(self.path / name) as file:
            file.write(parameter_bytes(parameters))

    def add_row(self, row: ProgressRow) -> None:
        """Append a line to ``progress.csv``."""
        self.rows.append(row)
        self._append_to("progress.csv", astuple(row))

    def add_episode(self, env_step: int, episode_return: float, length: int) -> None:
        """Append a training episode to ``episodes.csv``."""
        self._append_to("episodes.csv", (env_step, f"{episode_return:.10g}", length))

    def _append_to(self, name: str, values: Sequence[Any]) -> None:
        # They stay open: opening a file takes longer than an episode of a small game.
        if name not in self._tables:
            self._tables[name] = (self.path / name).open("a", newline="", buffering=1)
        csv.writer(self._tables[name], lineterminator="\n").writerow(values)

    def _close_tables(self) -> None:
        for file in self._tables.values():
            with suppress(OSError):  # a full disk, which was reported when the row was written
                file.close()
        self._tables.clear()


def _set_aside(log: Path) -> None:
    """Rename a file of TensorBoard's, which may be a copy, so that it is not read."""
    log.rename(log.with_name(log.name.replace("events.out.tfevents", "set-aside")))


def _parse_row(texts: dict[str, str]) -> ProgressRow:
    values: dict[str, Any] = {
        name: float(texts[name]) if texts[name] else None for name in ProgressRow.__annotations__
    }
    steps = {name: int(texts[name]) for name in ("env_step", "gradient_step")}
    return ProgressRow(**{**values, **steps})


def describe_run() -> dict[str, Any]:
    """Describe what a result depends on: command, versions, commit, machine, time."""
    limit = memory_limit()
    versions = {package: _version(package) for package in _PACKAGES}
    return {
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        # Not the version of the installed package, which may be another clone's.
        "versions": {
            "python": platform.python_version(),
            "medqn-tianshou": __version__,
            **versions,
        },
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


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit that the package is run from, with ``+changes`` if files differ from it."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():  # installed, perhaps into the repository of someone else
        return None
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=root, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        name = None
    return name[1].strip() if name else platform.processor()
