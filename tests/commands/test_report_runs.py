"""The command medqn report: which runs it reads, how it groups them, and bad input."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from report_helpers import CAMPAIGN, copy_results, iqm, read_table, run_report
from scripts import ROOT

from medqn_tianshou.commands import main as command
from medqn_tianshou.commands.report import page
from medqn_tianshou.commands.report.groups import group_runs
from medqn_tianshou.commands.report.published import published_marks
from medqn_tianshou.commands.report.runs import RecordedRun, find_runs, read_runs
from medqn_tianshou.commands.report.statistics import HUMAN, scale_of
from medqn_tianshou.envs.atari import atari_tasks
from medqn_tianshou.experiments.settings import (
    AtariSettings,
    Setting,
    load_settings,
    resolve_settings,
)
from medqn_tianshou.files.extras import install_command

pytestmark = pytest.mark.slow

pytest.importorskip("rliable")


def error_of(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_info:
        command.main(["report", *map(str, arguments)])
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes most of the time."""
    monkeypatch.setattr(page, "draw_figures", lambda out, analysis: [])


@pytest.fixture(scope="module")
def short_runs(tmp_path_factory):
    """Run folders as the training leaves them."""
    log = tmp_path_factory.mktemp("log")
    flags = ["--steps", "300", "--warmup-steps", "64", "--max-episode-steps", "30"]
    flags += ["--eval-every", "100", "--eval-episodes", "2", "--eps-test", "0.1"]
    flags += ["--no-progress", "--logdir", str(log)]
    for algo, seed, *more in (
        ("medqn-u", 0),
        ("medqn-u", 1),
        ("dqn", 0),
        ("dqn", 0, "--buffer-size", "100"),
    ):
        run = ["--task", "Catcher", "--algo", algo, "--seed", str(seed), *more, *flags]
        assert command.main(["train", "lowdim", *run]) == 0
    return log


def test_run_folders_are_reported_by_their_evaluations(short_runs, tmp_path, capsys):
    run_report(short_runs, "--out", tmp_path, "--bootstrap", 100, "--window", 2)
    told = capsys.readouterr().out
    assert "runs: 4\nalgorithms: MeDQN(U), DQN, DQN (buffer size 100)\ntasks: Catcher\n" in told
    rows = {(row["algorithm"], row["seed"]): row for row in read_table(tmp_path / "runs.csv")}
    assert {label for label, _ in rows} == {"MeDQN(U)", "DQN", "DQN (buffer size 100)"}
    for row in rows.values():
        folder = short_runs / row["run"]
        progress = [r for r in read_table(folder / "progress.csv") if r["eval_return_mean"]]
        means = [float(r["eval_return_mean"]) for r in progress]
        assert len(means) > 2
        assert float(row["final_return"]) == pytest.approx(np.mean(means[-2:]))
        summary = json.loads((folder / "summary.json").read_text())
        assert float(row["peak_rss_mb"]) == summary["peak_rss_mb"]
        seconds = (summary["env_steps"] - 64) / summary["steps_per_s"]
        assert float(row["train_seconds"]) == pytest.approx(seconds)
    (protocol,) = read_table(tmp_path / "protocol.csv")
    assert (protocol["episodes"], protocol["epsilon"], protocol["window"]) == ("2", "0.1", "2")
    text = (tmp_path / "README.md").read_text()
    assert "evaluation return, mean of 2 episodes in each of the last 2 evaluations" in text
    assert "1 to 2 runs each: no interval" in text
    (of_two,) = [row for row in read_table(tmp_path / "returns.csv") if row["runs"] == "2"]
    assert of_two["mean"]
    assert of_two["mean_low"] == of_two["mean_high"] == ""


def test_without_a_window_final_returns_are_those_of_the_summaries(
    short_runs, tmp_path, no_figures
):
    run_report(short_runs, "--out", tmp_path, "--bootstrap", 100)
    for row in read_table(tmp_path / "runs.csv"):
        summary = json.loads((short_runs / row["run"] / "summary.json").read_text())
        assert float(row["final_return"]) == pytest.approx(summary["final_return"])


def test_bounds_decide_the_scores(short_runs, tmp_path, no_figures):
    bounds = ["--bounds", "Catcher=-10:30"]
    run_report(short_runs, "--out", tmp_path, "--bootstrap", 100, *bounds, "--metric", "train")
    for row in read_table(tmp_path / "runs.csv"):
        assert row["metric"] == "train"
        score = (float(row["final_return"]) + 10) / 40
        assert float(row["score"]) == pytest.approx(score)


def test_unfinished_and_repeated_runs_are_named_and_left_out(
    short_runs, tmp_path, capsys, no_figures
):
    log = tmp_path / "log"
    shutil.copytree(short_runs, log)
    (stopped,) = (log / "Catcher/medqn-u/1").iterdir()
    (stopped / "summary.json").unlink()
    (run,) = (log / "Catcher/medqn-u/0").iterdir()
    shutil.copytree(run, run.with_name("99990101-000000"))
    foreign = log / "else/config.json"
    foreign.parent.mkdir()
    foreign.write_text("{}")
    run_report(log, "--out", tmp_path / "a", "--bootstrap", 100)
    told = capsys.readouterr().err
    assert f"left out: {stopped}: unfinished after 300 env steps" in told
    assert f"left out: {run}: has the settings and the seed of" in told
    assert f"left out: {foreign.parent}: config.json is not a run's" in told
    assert "## Left out" in (tmp_path / "a/README.md").read_text()
    seeds = [r["seed"] for r in read_table(tmp_path / "a/runs.csv") if r["algorithm"] == "MeDQN(U)"]
    assert seeds == ["0"]
    run_report(log, "--out", tmp_path / "b", "--bootstrap", 100, "--unfinished")
    rows = [r for r in read_table(tmp_path / "b/runs.csv") if r["algorithm"] == "MeDQN(U)"]
    assert [(r["seed"], r["status"]) for r in rows] == [("0", "finished"), ("1", "unfinished")]
    assert rows[1]["train_seconds"] == ""


@pytest.mark.parametrize(("rows", "episodes"), [(0, 1), (1, 3)])
def test_a_run_killed_before_its_second_row_has_the_length_of_its_episodes(
    short_runs, tmp_path, no_figures, rows, episodes
):
    log = tmp_path / "log"
    (run,) = (short_runs / "Catcher/medqn-u/0").iterdir()
    shutil.copytree(run, log)
    (log / "summary.json").unlink()
    for name, count in (("progress.csv", rows), ("episodes.csv", episodes)):
        lines = (log / name).read_text().splitlines(keepends=True)
        (log / name).write_text("".join(lines[: count + 1]))
    returns = [float(row["return"]) for row in read_table(log / "episodes.csv")]
    flags = ["--bootstrap", 100, "--unfinished", "--metric", "train"]
    run_report(log, "--out", tmp_path / "report", *flags)
    (row,) = read_table(tmp_path / "report/runs.csv")
    assert int(row["env_steps"]) == 30 * episodes
    assert float(row["final_return"]) == pytest.approx(np.mean(returns))
    points = read_table(tmp_path / "report/curves.csv")
    assert int(points[-1]["env_step"]) == 30 * episodes


def recorded(task, algorithm, seed=0, **flags):
    """A run with a setting that has a default, and others given by hand."""
    settings = {"lr": Setting({"A": 0.1, "B": 0.2}[task], "paper")}
    settings |= {name: Setting(value, "flag") for name, value in flags.items()}
    settings.setdefault("buffer_size", Setting(10_000, "paper"))
    return RecordedRun(
        name=f"{task}/{algorithm}/{seed}/{flags}", task=task, family="lowdim", algorithm=algorithm,
        seed=seed, settings=settings, status="finished", env_steps=1, peak_rss_mb=None,
        buffer_mb=None, train_seconds=None, started="", cpu="", episodes=ROOT, evaluations=(),
    )  # fmt: skip


def test_labels_name_what_differs_and_are_the_same_in_all_tasks():
    runs = [
        recorded("A", "DQN"),
        recorded("A", "DQN", 1, buffer_size=10_000.0),  # its default: no difference
        recorded("A", "DQN", buffer_size=500),
        recorded("B", "DQN", buffer_size=500),
        recorded("B", "MeDQN(U)", buffer_size=32),
    ]
    groups, left_out = group_runs(runs)
    assert {key: len(group) for key, group in groups.items()} == {
        ("A", "DQN"): 2,
        ("A", "DQN (buffer size 500)"): 1,
        ("B", "DQN (buffer size 500)"): 1,
        ("B", "MeDQN(U)"): 1,
    }
    assert left_out == []


def cut(run, env_step, out):
    """Copy a run folder as if the run had been given a shorter length."""
    shutil.copytree(run, out)
    rows = [r for r in read_table(run / "episodes.csv") if float(r["env_step"]) <= env_step]
    lines = [",".join(row.values()) for row in rows]
    (out / "episodes.csv").write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    summary = json.loads((run / "summary.json").read_text())
    (out / "summary.json").write_text(json.dumps({**summary, "env_steps": env_step}))
    return [float(row["return"]) for row in rows]


def test_runs_of_different_lengths_are_compared_at_the_step_that_all_reached(tmp_path, no_figures):
    runs = CAMPAIGN / "Acrobot-v1"
    shutil.copytree(runs / "dqn/0", tmp_path / "runs/long")
    short = cut(runs / "medqn-u/0", 60_000, tmp_path / "runs/short")
    cut_long = cut(runs / "dqn/0", 60_000, tmp_path / "expected")
    run_report(tmp_path / "runs", "--out", tmp_path / "report", "--bootstrap", 100)
    rows = {row["algorithm"]: row for row in read_table(tmp_path / "report/returns.csv")}
    for label, returns in (("DQN", cut_long), ("MeDQN(U)", short)):
        assert float(rows[label]["mean"]) == pytest.approx(np.mean(returns[-20:]))
        assert float(rows[label]["mean_last_100"]) == pytest.approx(np.mean(returns[-100:]))
    text = (tmp_path / "report/README.md").read_text()
    assert "at env step 60,000, which all runs reached (they have 60,000 or 100,000)" in text


def test_raw_folders_and_run_folders_are_found_once(tmp_path):
    folders, raw = copy_results(tmp_path)
    files = [*find_runs(folders), *find_runs(raw / "raw"), *find_runs(tmp_path)]
    runs, left_out = read_runs(files)
    assert (len(files), len(runs), left_out) == (90, 45, [])


def write_atari_run(folder, game, algo, seed, evaluations, **flags):
    """A run folder as the Atari script leaves it, without what a report does not read."""
    task = f"{game}NoFrameskip-v4"
    settings = resolve_settings(AtariSettings, algo=algo, task=task, overrides=flags)
    folder.mkdir(parents=True)
    config = {"task": task, "algo": algo, "seed": seed, "settings": settings.written()}
    (folder / "config.json").write_text(json.dumps(config))
    steps = 100_000 * len(evaluations)
    summary = {"status": "finished", "env_steps": steps, "steps_per_s": 200.0}
    summary |= {
        "final_return": None,
        "peak_rss_mb": 1500.0,
        "buffer_mb": 20.0 if algo == "medqn" else 7091.0,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    rows = [f"{100_000 * (i + 1)},{value}" for i, value in enumerate(evaluations)]
    (folder / "progress.csv").write_text("\n".join(["env_step,eval_return_mean", *rows, ""]))
    return folder


def test_atari_evaluations_are_human_normalised(tmp_path, no_figures):
    finals = {
        ("Qbert", "medqn"): [4000, 5000, 9000],
        ("Qbert", "dqn"): [3000, 4000, 5000],
        ("Pong", "medqn"): [10, 20, 21],
        ("Pong", "dqn"): [15, 20, 5],
    }
    for (game, algo), values in finals.items():
        for seed, value in enumerate(values):
            folder = tmp_path / "log" / game / algo / str(seed)
            write_atari_run(folder, game, algo, seed, [0.0, value])
    run_report(tmp_path / "log", "--out", tmp_path, "--bootstrap", 100)
    rows = {(r["algorithm"], r["aggregate"]): r for r in read_table(tmp_path / "aggregates.csv")}
    for algo, label in (("medqn", "MeDQN(R)"), ("dqn", "DQN")):
        qbert = (np.array(finals["Qbert", algo]) - 163.9) / (13455.0 - 163.9)
        pong = (np.array(finals["Pong", algo]) + 20.7) / (14.6 + 20.7)
        pooled = np.concatenate([pong, qbert])
        assert float(rows[label, "IQM"]["value"]) == pytest.approx(iqm(pooled))
        assert float(rows[label, "mean"]["value"]) == pytest.approx(pooled.mean())
        gap = np.maximum(1 - pooled, 0).mean()  # a score above 1 does not make up for others
        assert float(rows[label, "optimality gap"]["value"]) == pytest.approx(gap)
    text = (tmp_path / "README.md").read_text()
    assert (
        "evaluation return, mean of 5 episodes at the end of 200,000 env steps, epsilon 0, " in text
    )
    assert "rewards not clipped, whole games of at most 108,000 steps" in text
    assert "Random and human player: as listed by DQN Zoo; from Wang et al. 2016" in text
    # Its warm-up is not part of its steps.
    assert {row["train_seconds"] for row in read_table(tmp_path / "runs.csv")} == {"1000.0"}


def test_atari_curves_are_drawn_as_the_published_ones_with_these_behind(tmp_path):
    random = np.random.default_rng(0)
    evaluations = 5000 * (1 - np.exp(-np.arange(30) / 10)) + random.normal(0, 900, (3, 30))
    for seed, values in enumerate(evaluations):
        folder = tmp_path / "log/NameThisGame/medqn" / str(seed)
        write_atari_run(folder, "NameThisGame", "medqn", seed, values, buffer_size=100_000)
    run_report(tmp_path / "log", "--out", tmp_path, "--bootstrap", 100)
    last = read_table(tmp_path / "curves.csv")[-1]
    assert (last["env_step"], last["statistic"]) == ("3000000", "median")
    means = np.sort(evaluations[:, -3:].mean(axis=1))  # of the last 250,000 steps
    found = [float(last[name]) for name in ("low", "return", "high")]
    assert found == pytest.approx(means, abs=1e-3)
    text = (tmp_path / "README.md").read_text()
    assert "mean of the evaluations of the 250,000 steps before, then median over runs" in text
    assert "Open marks: published" in text

    run, *_ = read_runs(find_runs(tmp_path / "log"))[0]
    marks = published_marks(run)
    assert marks[:, 0].tolist() == [5e5, 1e6, 1.5e6, 2e6, 3e6]  # up to the end of the run
    assert np.round(marks[3, 1:]).tolist() == [6007, 4362, 6407]
    assert len(published_marks(replace(run, algorithm="MeDQN(U)"))) == 0
    assert len(published_marks(replace(run, task="PongNoFrameskip-v4"))) == 0


def test_atari_scores_are_of_the_57_games_and_scale_evaluations_only():
    scores = load_settings("atari_scores")["score"]
    assert len(scores) == 57
    assert {f"{game}NoFrameskip-v4" for game in scores} <= set(atari_tasks())
    assert all(score["human"] > score["random"] for score in scores.values())
    returns = np.array([1000.0, 163.9])
    scale = scale_of("QbertNoFrameskip-v4", "eval", returns, {})
    assert scale.reason == HUMAN
    assert scale(np.array([163.9, 13455.0, 1000.0])) == pytest.approx([0, 1, 836.1 / 13291.1])
    assert scale_of("QbertNoFrameskip-v4", "train", returns, {})(returns) == pytest.approx([1, 0])
    # MinAtar's breakout is another game.
    assert scale_of("breakout", "eval", returns, {}).reason != HUMAN
    assert scale_of("breakout", "eval", returns[:1], {}) is None


def test_bad_input_is_one_line(tmp_path, capsys, short_runs, monkeypatch):
    results = CAMPAIGN / "Acrobot-v1"
    assert "'none' is not a folder" in error_of(capsys, "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "argument RUNS:" in error_of(capsys, empty)
    error = error_of(capsys, results, "--metric", "eval", "--out", tmp_path)
    assert error.endswith("argument --metric: eval is not in any of the runs; use --metric train")
    error = error_of(capsys, results, "--bounds", "Pong=0:1", "--out", tmp_path)
    assert "argument --bounds: Pong is not a task of these runs; they have Acrobot-v1" in error
    assert "LOW below HIGH" in error_of(capsys, results, "--bounds", "Acrobot-v1=1:0")
    assert "at least 100" in error_of(capsys, results, "--bootstrap", "5")
    (tmp_path / "file").touch()
    assert "argument --out:" in error_of(capsys, results, "--out", tmp_path / "file")
    damaged = tmp_path / "log/config.json"
    damaged.parent.mkdir()
    damaged.write_text("{")
    assert "has no run to report" in error_of(capsys, tmp_path / "log", "--out", tmp_path)
    monkeypatch.setitem(sys.modules, "rliable", None)
    assert install_command("report") in error_of(capsys, results)
