"""What the tests of medqn report share."""

import csv
import json
import shutil

import numpy as np
from scripts import ROOT

from medqn_tianshou.commands import main as command

CAMPAIGN = ROOT / "campaign/results/A1"
ALGORITHMS = {"MeDQN(U)": "medqn-u", "DQN": "dqn", "DQN(S)": "dqn-s"}
SEEDS = {"MountainCar-v0": 10, "Acrobot-v1": 5}


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


def write_raw(run, path):
    """Write a run folder as the two files that ``medqn reproduce`` leaves in ``raw/``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = json.loads((run / "config.json").read_text())
    record["summary"] = json.loads((run / "summary.json").read_text())
    path.write_text(json.dumps(record))
    shutil.copy(run / "episodes.csv", path.with_suffix(".csv"))


def copy_results(out):
    """Copy runs of the campaign: 10 run folders per algorithm, and 5 in ``raw/`` of another task.

    :return: the two folders.
    """
    for algo in ALGORITHMS.values():
        for task, count in SEEDS.items():
            for seed in range(count):
                run = CAMPAIGN / task / algo / str(seed)
                if task == "Acrobot-v1":
                    write_raw(run, out / task / f"raw/{algo}_seed{seed}.json")
                else:
                    shutil.copytree(run, out / task / algo / str(seed))
    return [out / task for task in SEEDS]
