"""What the authors published of their Atari runs (``docs/data/atari_published.csv``)."""

import csv
from functools import cache
from pathlib import Path

import numpy as np

from medqn_tianshou.commands.report.curves import Array
from medqn_tianshou.commands.report.runs import RecordedRun

FILE = Path(__file__).parents[3] / "docs/data/atari_published.csv"
"""Part of the repository, not of the installed package."""
MARK_STEPS = 250_000
"""Environment steps before a mark whose evaluations it averages, as the published ones do."""


@cache
def _rows() -> list[dict[str, str]]:
    if not FILE.is_file():
        return []
    with FILE.open(newline="") as file:
        return list(csv.DictReader(file))


def published_marks(run: RecordedRun) -> Array:
    """Return step, median, lowest and highest return of each mark that a run's evaluations reach.

    Empty if nothing was published for the run's game, algorithm and buffer size.
    """
    marks = all_published_marks(run.task, run.algorithm, run.value("buffer_size"))
    return marks[marks[:, 0] <= run.last_evaluation]


def all_published_marks(task: str, algorithm: str, buffer_size: int) -> Array:
    """Return the same for all marks of a game, an algorithm and a buffer size."""
    game = task.removesuffix("NoFrameskip-v4").lower()
    is_power = str(buffer_size).strip("0") == "1"
    agent = f"{algorithm} m=1e{len(str(buffer_size)) - 1}" if is_power else ""
    marks = [
        [float(row[name]) for name in ("env_steps", "median", "lowest", "highest")]
        for row in _rows()
        if row["game"].replace("_", "") == game and row["agent"] == agent
    ]
    return np.array(marks).reshape(-1, 4)


def score_at(run: RecordedRun, mark: float) -> float:
    """Return the score of a run at a mark, as the published ones: a mean of evaluations."""
    scores = [score for step, score in run.evaluations if mark - MARK_STEPS < step <= mark]
    return float(np.mean(scores))


def score_curve(run: RecordedRun) -> tuple[Array, Array]:
    """Return the steps of a run's evaluations, and the score at each."""
    steps = np.array([step for step, _ in run.evaluations])
    return steps, np.array([score_at(run, step) for step in steps])
