"""What the authors published of their Atari runs (``docs/data/atari_published.csv``)."""

import csv
from functools import cache
from pathlib import Path

import numpy as np

from medqn_tianshou.commands.report.curves import Array
from medqn_tianshou.commands.report.runs import RecordedRun

FILE = Path(__file__).parents[3] / "docs/data/atari_published.csv"
"""Part of the repository, not of the installed package."""
EVALUATIONS = 20
"""Evaluations in the moving mean of the published plots."""


@cache
def _rows() -> list[dict[str, str]]:
    if not FILE.is_file():
        return []
    with FILE.open(newline="") as file:
        return list(csv.DictReader(file))


def published_marks(run: RecordedRun) -> Array:
    """Return step, median, lowest and highest return of each mark up to the end of a run.

    Empty if nothing was published for the run's game, algorithm and buffer size.
    """
    game = run.task.removesuffix("NoFrameskip-v4").lower()
    size = run.value("buffer_size")
    agent = f"{run.algorithm} m=1e{len(str(size)) - 1}" if str(size).strip("0") == "1" else ""
    marks = [
        [float(row[name]) for name in ("env_steps", "median", "lowest", "highest")]
        for row in _rows()
        if row["game"].replace("_", "") == game and row["agent"] == agent
    ]
    return np.array([mark for mark in marks if mark[0] <= run.env_steps]).reshape(-1, 4)
