"""The published tables against the raw files of the runs."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_a_table_of_final_returns_follows_from_the_episodes_of_its_runs():
    with (ROOT / "docs/results/A1/returns.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == "MountainCar-v0"]
    assert {row["algorithm"] for row in rows} == {"MeDQN(U)", "DQN", "DQN(S)"}
    for row in rows:
        algo = {"MeDQN(U)": "medqn-u", "DQN": "dqn", "DQN(S)": "dqn-s"}[row["algorithm"]]
        finals = []
        for folder in (ROOT / "campaign/results/A1/MountainCar-v0" / algo).iterdir():
            window = json.loads((folder / "config.json").read_text())["settings"]["return_window"]
            episodes = (folder / "episodes.csv").read_text().split()[1:]
            returns = [float(line.split(",")[1]) for line in episodes]
            finals.append(np.mean(returns[-window["value"] :]))
        assert len(finals) == int(row["runs"])
        assert np.mean(finals) == pytest.approx(float(row["mean"]))
        assert np.median(finals) == pytest.approx(float(row["median"]))
