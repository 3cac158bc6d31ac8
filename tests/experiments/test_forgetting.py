"""Figure 2: the greedy action of one state over training."""

import csv
import re
from itertools import pairwise

from medqn_tianshou.experiments import forgetting


def test_counts_in_the_table_are_those_of_the_file(tmp_path, capsys):
    assert forgetting.main(["--steps", "1300", "--out", str(tmp_path)]) == 0
    with (tmp_path / "changes.csv").open() as file:
        rows = list(csv.DictReader(file))
    printed = capsys.readouterr().out
    for algo, label in (("dqn", "DQN"), ("dqn-s", "DQN(S)"), ("medqn-u", "MeDQN(U)")):
        of_algo = [row for row in rows if row["algo"] == algo]
        actions = [row["action"] for row in of_algo]
        # each row is a change, and the first is where the watch began: after the warm-up
        assert all(one != other for one, other in pairwise(actions))
        assert of_algo[0]["env_step"] == "1000"
        (count,) = re.findall(rf"^\| {re.escape(label)} \| (\d+) ±", printed, re.MULTILINE)
        assert int(count) == len(actions) - 1
    assert (tmp_path / "fig2.png").stat().st_size > 10_000
