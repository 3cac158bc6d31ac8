"""The published tables against the raw files of the runs."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scripts import ROOT, load_script


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


def test_a_stopped_run_is_collected_as_far_as_it_got_and_again_when_it_got_further(tmp_path):
    collect = load_script("campaign/collect.py")
    folder = tmp_path / "out/runs/B/Game/dqn/0/20260101-000000"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"arguments": ["--logdir", "x"], "task": "Game"}')
    (folder / "progress.csv").write_text("env_step\r\n0\r\n")

    def ended_at(env_steps, state, episodes=1):
        summary = {"env_steps": env_steps, "status": state}
        (folder / "summary.json").write_text(json.dumps(summary))
        lines = ["env_step,return", *[f"{env_steps},1"] * episodes]
        (folder / "episodes.csv").write_text("".join(f"{line}\r\n" for line in lines))
        runs = {
            "B_Game_dqn_seed0": {
                "state": state, "folder": str(folder.relative_to(tmp_path / "out")), "command": "c",
            },
            "B_Game_dqn_seed1": {"state": "waiting", "folder": None, "command": "c"},
        }  # fmt: skip
        (tmp_path / "out/status.json").write_text(json.dumps({"runs": runs}))
        return collect.collect(tmp_path / "out", tmp_path / "results")

    copied = tmp_path / "results/B/Game/dqn/0"
    assert ended_at(100, "running") == 0
    assert ended_at(50, "stopped", episodes=0) == 0
    assert not copied.exists()
    assert [ended_at(100, "stopped"), ended_at(100, "stopped")] == [1, 0]
    assert ended_at(300, "stopped") == 1  # in its last evaluation
    assert [ended_at(300, "finished"), ended_at(300, "finished")] == [1, 0]
    assert (copied / "episodes.csv").read_text() == "env_step,return\n300,1\n"
    assert json.loads((copied / "config.json").read_text()) == {"task": "Game", "command": "c"}


def test_scores_at_a_published_mark_average_the_evaluations_before_it():
    compare, page = load_script("campaign/compare.py"), load_script("campaign/page.py")
    steps = range(0, 600_000, 100_000)
    evaluations = tuple((float(step), step / 1000) for step in steps)
    run = page.RecordedRun(
        name="", task="NameThisGameNoFrameskip-v4", family="atari", algorithm="MeDQN(R)", seed=0,
        settings={"buffer_size": SimpleNamespace(value=100_000)}, status="interrupted",
        env_steps=520_000, peak_rss_mb=None, buffer_mb=None, train_seconds=None, started="", cpu="",
        episodes=ROOT, evaluations=evaluations,
    )  # fmt: skip
    # Stopped in the evaluation at the mark: it has the steps, but not the score.
    shorter = replace(run, env_steps=500_000, evaluations=evaluations[:5])
    dqn = replace(run, algorithm="DQN")
    (row,) = page._beside_published({"MeDQN(R)": [run, shorter]})
    assert row[:3] == ("MeDQN(R)", "500,000", "400 (1)")  # 300, 400, 500
    assert row[3].startswith("1,459 [")
    # At the last mark that a run of each algorithm reached; not at the end of the shortest run.
    finals = compare._final_returns({"MeDQN(R)": [run, shorter], "DQN": [dqn]})
    assert {name: list(values) for name, values in finals.items()} == {
        "MeDQN(R)": [400.0], "DQN": [400.0],
    }  # fmt: skip
    of = compare.Comparison(
        {}, "open", "B",
        pairs=[compare.Pair(text, verdict, None) for text, verdict in (
            ("A > B", "agrees"), ("A > C", "open"), ("B > C", "agrees"), ("C > D", "disagrees"),
        )],
    )  # fmt: skip
    assert page._by_verdict(of) == "agrees on A > B and B > C; disagrees on C > D"
    # One run each is no comparison.
    claim = {"figure": "Figure 6(a)", "paper": "R wins", "above": [["MeDQN(R)", "DQN"]]}
    assert compare._compare_pairs(claim, finals, complete=True) == ([], "open")
    of = compare.Comparison(
        claim | {"length": "1 of 5"}, "open", "B", 3, 2, {"MeDQN(R)": [run]}, finals,
        is_complete=False,
    )  # fmt: skip
    assert page._row(of) == [
        "[Figure&nbsp;6(a)](B/README.md)", "R wins",
        "[**open**](comparisons.md#figure-6a) at 1 of 5 steps",
        "MeDQN(R):&nbsp;400<br>DQN:&nbsp;400", "1 of 6 so far, 1 stopped at 520,000 steps",
    ]  # fmt: skip


def test_the_lines_of_a_claim_are_algorithms_and_variants_or_those_of_a_figure(
    tmp_path, monkeypatch
):
    compare = load_script("campaign/compare.py")
    monkeypatch.setattr(compare, "HERE", tmp_path)
    monkeypatch.setattr(compare, "DOCS", tmp_path)

    def run(folder, algorithm, seed, task="MinAtar/Seaquest-v1"):
        name = str(tmp_path / "results/D" / folder / "seaquest/x" / str(seed))
        return SimpleNamespace(name=name, algorithm=algorithm, seed=seed, task=task)

    runs = [run("without", "MeDQN(R)", 1), run("without", "MeDQN(R)", 0)]
    runs += [run("with-it", "MeDQN(R)", 0), run("", "DQN", 0), run("", "DQN", 1, "MinAtar/Asterix")]
    lines = compare._lines_of_study("D", runs, "minatar/seaquest")
    assert {name: [run.seed for run in of_line] for name, of_line in lines.items()} == {
        "MeDQN(R) without": [0, 1], "MeDQN(R) with it": [0], "DQN": [0],
    }  # fmt: skip

    names = ["lambda_8_seed0", "lambda_8_seed1", "lambda_0.01_seed0", "lambda_0.01_to_4_seed0"]
    (tmp_path / "fig3a/raw").mkdir(parents=True)
    for name in names:
        (tmp_path / f"fig3a/raw/{name}.json").touch()
    monkeypatch.setattr(
        compare, "read_runs", lambda files: ([SimpleNamespace(seed=f) for f in files],)
    )
    lines, planned = compare._lines_of_figure("fig3a")
    found = {name: [run.seed.stem for run in of_line] for name, of_line in lines.items()}
    assert (planned, found) == (6, {
        "lambda 0.01": names[2:3], "lambda 8": names[:2], "lambda 0.01 to 4": names[3:],
    })  # fmt: skip


def test_verdicts_on_a_claim():
    compare = load_script("campaign/compare.py")
    claim = {"figure": "5", "not_below": [["A", "B"]], "above": [["A", "C"]]}

    def finding(a, b, c, complete=True):
        finals = {"A": np.array(a), "B": np.array(b), "C": np.array(c)}
        pairs, verdict = compare._compare_pairs(claim, finals, complete=complete)
        return verdict, *[(pair.relation, pair.verdict, pair.probability) for pair in pairs]

    low, high = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]
    assert finding(high, low, low) == (
        "agrees",
        ("A ≥ B", "agrees", compare.Estimate(1.0)),
        ("A > C", "agrees", compare.Estimate(1.0)),
    )
    assert finding(high, low, low, complete=False)[0] == "open"
    assert finding(high, [1, 2, 4.5], low)[:2] == (
        "open",
        ("A ≥ B", "open", compare.Estimate(pytest.approx(8 / 9))),
    )
    assert finding(low, high, high)[0] == "disagrees"
    assert finding(high, [7.0, 8.0, 9.0], low)[0] == "disagrees in part"

    many = list(np.arange(20.0))
    one, other = finding(many, many, many)[1:]
    assert (one[:2], other[:2]) == (("A ≥ B", "agrees"), ("A > C", "open"))
    for pair in (one, other):
        assert pair[2].value == 0.5
        assert 0.3 < pair[2].low < 0.4
        assert 0.6 < pair[2].high < 0.7
    finals = np.array(low)
    with pytest.raises(RuntimeError, match="5: A or D is no line"):
        compare._compare_pairs(
            {**claim, "above": [["A", "D"]]}, {"A": finals, "B": finals}, complete=True
        )
