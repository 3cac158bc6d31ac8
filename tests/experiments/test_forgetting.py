"""Figure 2: the greedy action of one state over training."""

import csv
from itertools import pairwise

import pytest
import torch

from medqn_tianshou.commands.figures import forgetting
from medqn_tianshou.experiments.forgetting import GreedyActionLog, read_changes

pytestmark = pytest.mark.slow


def test_counts_in_the_table_are_those_of_the_file(tmp_path, capsys):
    typed = ["--budget", "1300", "--out", str(tmp_path)]
    other = tmp_path / "unfinished/runs/MountainCar-v0/dqn/1/20260101-120000/config.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    assert forgetting.main(typed, "medqn reproduce fig2") == 0
    with (tmp_path / "changes.csv").open() as file:
        rows = list(csv.DictReader(file))
    printed = capsys.readouterr().out
    for algo, label in (("dqn", "DQN"), ("dqn-s", "DQN(S)"), ("medqn-u", "MeDQN(U)")):
        of_algo = [row for row in rows if row["algo"] == algo]
        actions = [row["action"] for row in of_algo]
        # each row is a change, and the first is where the watch began: after the warm-up
        assert all(one != other for one, other in pairwise(actions))
        assert of_algo[0]["env_step"] == "1000"
        # every eighth step, the last action logged until then; one run has no standard error
        changes = [(int(row["env_step"]), row["action"]) for row in of_algo]
        checked = [
            max(change for change in changes if change[0] <= step)[1]
            for step in range(1000, 1300, 8)
        ]
        count = sum(one != other for one, other in pairwise(checked))
        second = checked[len(checked) // 2 :]
        shares = [f"{100 * second.count(action) / len(second):.1f}" for action in "012"]
        row = " | ".join([label, str(count), max(shares, key=float), *shares, "1"])
        assert f"\n| {row} |\n" in printed
    assert (tmp_path / "fig2.png").stat().st_size > 10_000
    assert list(tmp_path.rglob("config.json")) == [other]  # of another seed, to resume
    page = (tmp_path / "README.md").read_text()
    assert f"Command: `medqn reproduce fig2 --budget 1300 --out {tmp_path}`." in page
    with pytest.raises(SystemExit):
        forgetting.main(typed)
    assert "replace them with --overwrite" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == page


def test_a_resumed_run_drops_what_was_logged_after_its_checkpoint(tmp_path):
    class Policy:
        def __init__(self, action):
            self.action = action

        def model(self, _):
            return torch.eye(3)[[self.action]], None

    path = tmp_path / "log/changes.csv"
    first = GreedyActionLog(path)
    for step, action in ((100, 1), (101, 1), (102, 2), (103, 0)):
        first(Policy(action), step)
    assert read_changes(path) == [(100, 1), (102, 2), (103, 0)]
    resumed = GreedyActionLog(path)  # from a checkpoint at step 103
    for step, action in ((103, 2), (104, 1)):
        resumed(Policy(action), step)
    assert read_changes(path) == [(100, 1), (102, 2), (104, 1)]
