"""Runs read from their files: run folders, and the ``raw/`` folders of figure commands."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medqn_tianshou.commands.report.curves import Curve, last_means, read_curve
from medqn_tianshou.experiments.settings import Settings, check_values, family_of
from medqn_tianshou.files.container import UNSOUND
from medqn_tianshou.files.schema import number
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.run_config import RunConfig, check_summary

Metric = Literal["train", "eval"]

USUAL_RETURN_WINDOW = 100
"""Training episodes that a return averages over in runs without such a setting: Atari's."""
PAPER_NAMES = {
    "medqn-u": "MeDQN(U)",
    "medqn-r": "MeDQN(R)",
    "dqn": "DQN",
    "dqn-s": "DQN(S)",
    "pqn": "PQN",
    "stream-q": "Stream-Q",
}
_NAMES_BY_SAMPLING = {
    "real": "MeDQN(R)",
    "uniform": "MeDQN(U)",
    "mixed": "MeDQN(mixed)",
    "reservoir": "MeDQN(reservoir)",
}
UNFINISHED = "unfinished"
_NEEDED = {"eps_train", "eps_train_final", "eps_decay_steps"}
# The errors that reading a damaged or foreign file may raise.
_UNREADABLE = (OSError, MemoryError, *UNSOUND)


class UnusableRunError(Exception):
    """A run that cannot be reported; its text says why."""


@dataclass(frozen=True)
class LeftOut:
    """A run that is not in the report, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A run as its files describe it. MB are 10**6 bytes."""

    name: str
    """Its folder, or its file without the ending."""
    task: str
    family: str
    algorithm: str
    """As the paper writes it, e.g. ``MeDQN(U)``."""
    seed: int
    settings: Settings
    status: str
    """``finished``, ``interrupted``, ``failed``, or ``unfinished`` if it left no summary."""
    env_steps: int
    peak_rss_mb: float | None
    buffer_mb: float | None
    train_seconds: float | None
    """Training time without warm-up and evaluation."""
    cpu_seconds: float | None = None
    """CPU time of all threads, over all resumes; None in runs of earlier versions."""
    started: str
    cpu: str
    version: str = "unknown"
    """Of this package, which made the run."""
    episodes: Path
    evaluations: tuple[tuple[float, float], ...]
    """Environment step and mean return of each; the figure commands do not keep them."""

    def value(self, name: str) -> Any:
        """Return the value of a setting; None if this run has none of this name."""
        return self.settings[name].value if name in self.settings else None

    @property
    def last_evaluation(self) -> float:
        """Return the step of the last evaluation; a run that was stopped may have gone further."""
        return self.evaluations[-1][0] if self.evaluations else 0.0

    def window(self, metric: Metric, window: int | None) -> int:
        """Return how many episodes, or evaluations, a return averages over."""
        if window is not None:
            return window
        return 1 if metric == "eval" else int(self.value("return_window") or USUAL_RETURN_WINDOW)

    def curve(self, metric: Metric, window: int | None) -> Curve:
        """Return the run's returns over its length."""
        length = self.window(metric, window)
        if metric == "eval":
            if not self.evaluations or self.value("eps_test") is None:
                raise UnusableRunError("it has no evaluation")
            steps, returns = np.array(self.evaluations).T
            return Curve(steps, last_means(returns, length), int(self.last_evaluation))
        try:
            curve = read_curve(self.episodes, length, self.env_steps)
        except _UNREADABLE as error:
            raise UnusableRunError(f"{self.episodes.name} cannot be read ({error})") from error
        if not len(curve.value):
            raise UnusableRunError("no training episode ended")
        return curve


def find_runs(folder: Path) -> list[Path]:
    """Find the file with the settings of each run in a run folder, or in a folder to search."""
    if (folder / "config.json").is_file():
        return [folder / "config.json"]
    return sorted(
        path
        for path in folder.rglob("*.json")
        if path.name == "config.json" or path.with_suffix(".csv").is_file()
    )


def read_runs(files: Iterable[Path]) -> tuple[list[RecordedRun], list[LeftOut]]:
    """Read runs, each once; those that cannot be read are named with the reason."""
    runs, left_out = [], []
    for file in {path.resolve(): path for path in files}.values():
        try:
            runs.append(read_run(file))
        except UnusableRunError as error:
            left_out.append(LeftOut(_name_of(file), str(error)))
    return runs, left_out


def read_run(file: Path) -> RecordedRun:
    """Read a run from its ``config.json``, or from its JSON in a ``raw/`` folder."""
    in_folder = file.name == "config.json"
    try:
        config = json.loads(file.read_text())
        run_config = RunConfig.from_json(config)
        check_values(run_config)
        settings, family = run_config.settings, family_of(run_config)
        if missing := _NEEDED - settings.keys():
            raise UnusableRunError(f"{file.name} has no setting {min(missing)}")
        rows = _rows(file.with_name("progress.csv")) if in_folder else []
        summary = _read_summary(file, rows) if in_folder else config["summary"]
        if summary["status"] != UNFINISHED:
            check_summary(summary)
        speed = summary["steps_per_s"]
        # Atari's warm-up comes before the clock starts, that of the others is part of its steps.
        untimed = 0 if family == "atari" else settings["warmup_steps"].value
        return RecordedRun(
            name=_name_of(file),
            task=run_config.task,
            family=family,
            algorithm=_algorithm(run_config.algo, settings),
            seed=run_config.seed,
            settings=settings,
            status=summary["status"],
            env_steps=int(summary["env_steps"]),
            peak_rss_mb=summary["peak_rss_mb"],
            buffer_mb=summary["buffer_mb"],
            train_seconds=(summary["env_steps"] - untimed) / speed if speed else None,
            cpu_seconds=None if (cpu := summary.get("cpu_seconds")) is None else float(cpu),
            started=str(config.get("started", "")),
            cpu=str(config.get("hardware", {}).get("cpu", "unknown")),
            version=str(config.get("versions", {}).get("medqn-tianshou", "unknown")),
            episodes=file.with_name("episodes.csv") if in_folder else file.with_suffix(".csv"),
            evaluations=tuple(
                (_finite(row["env_step"]), _finite(row["eval_return_mean"]))
                for row in rows
                if row["eval_return_mean"]
            ),
        )
    except ConfigError as error:
        raise UnusableRunError(str(error)) from error
    except _UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnusableRunError(f"{file.name} is not a run's, or is damaged ({reason})") from error


def _finite(cell: str) -> float:
    value = float(cell)
    number()(value)
    return value


def _name_of(file: Path) -> str:
    return str(file.parent if file.name == "config.json" else file.with_suffix(""))


def _algorithm(algo: str, settings: Settings) -> str:
    if algo.startswith("medqn") and "sampling" in settings:
        return _NAMES_BY_SAMPLING.get(settings["sampling"].value, algo)
    return PAPER_NAMES.get(algo, algo)


def _read_summary(file: Path, rows: list[dict[str, str]]) -> Any:
    """Read how a run ended; without a summary, as ``progress.csv`` and ``episodes.csv`` have it."""
    path = file.with_name("summary.json")
    if path.is_file():
        return json.loads(path.read_text())
    last = rows[-1] if rows else {}
    logged = [*rows[-1:], *_rows(file.with_name("episodes.csv"))[-1:]]
    return {
        "status": UNFINISHED,
        "env_steps": max((int(row["env_step"]) for row in logged), default=0),
        "steps_per_s": None,
        "peak_rss_mb": max((float(row["rss_mb"]) for row in rows), default=None),
        "buffer_mb": float(last["buffer_mb"]) if last else None,
    }


def _rows(path: Path) -> list[dict[str, str]]:
    """Read a table without a last line that a killed process did not complete."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]
