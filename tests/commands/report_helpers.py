"""What the tests of medqn report share."""

import csv

import numpy as np

from medqn_tianshou.commands import main as command


def read_table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def iqm(scores):
    """Mean of the middle half; what is cut at each end is rounded down."""
    ordered = np.sort(np.ravel(scores))
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean()


def run_report(*arguments):
    assert command.main(["report", *map(str, arguments)]) == 0
