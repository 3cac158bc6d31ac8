"""The command medqn report: its numbers equal those worked out here by other means."""

import csv
import json
import re
import shutil
import sys
from itertools import product

import numpy as np
import pytest
from PIL import Image
from scripts import ROOT

from medqn_tianshou.commands import main as command
from medqn_tianshou.commands.report import page
from medqn_tianshou.commands.report.groups import group_runs
from medqn_tianshou.commands.report.runs import RecordedRun, find_runs, read_runs
from medqn_tianshou.commands.report.statistics import HUMAN, aggregate, improvement, scale_of
from medqn_tianshou.envs.atari import atari_tasks
from medqn_tianshou.experiments.settings import (
    AtariSettings,
    Setting,
    load_settings,
    resolve_settings,
)

pytest.importorskip("rliable")

FOLDERS = {"MountainCar-v0": "fig4a", "Acrobot-v1": "fig4b"}
FILES = {"MeDQN(U)": "MeDQN_U", "DQN": "DQN", "DQN(S)": "DQN_S"}
FIGURES = (
    "learning_curves", "aggregates", "improvement", "return_replay", "return_rss", "return_time",
)  # fmt: skip


def read_table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def committed(task, label, window=20):
    """Final returns straight from the files: mean of the last episodes of each run."""
    raw = ROOT / "docs/results" / FOLDERS[task] / "raw"
    return np.array(
        [
            np.mean([float(row["return"]) for row in read_table(path)[-window:]])
            for path in sorted(raw.glob(f"{FILES[label]}_seed*.csv"))
        ]
    )


def iqm(scores):
    """Mean of the middle half; what is cut at each end is rounded down."""
    ordered = np.sort(np.ravel(scores))
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean()


def run_report(*arguments):
    assert command.main(["report", *map(str, arguments)]) == 0


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
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    folders = [ROOT / "docs/results" / name for name in FOLDERS.values()]
    run_report(*folders, "--out", out, "--title", "Two tasks", "--bootstrap", 3000)
    return out


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


def test_final_returns_are_those_of_the_last_episodes(report):
    rows = {(row["task"], row["algorithm"]): row for row in read_table(report / "returns.csv")}
    assert rows.keys() == set(product(FOLDERS, FILES))
    for (task, label), row in rows.items():
        returns = committed(task, label)
        assert int(row["runs"]) == len(returns)
        assert float(row["mean"]) == pytest.approx(returns.mean())
        assert float(row["median"]) == pytest.approx(np.median(returns))
        assert float(row["lowest"]) == pytest.approx(returns.min())
        assert float(row["highest"]) == pytest.approx(returns.max())
        # The bootstrap by hand: resample runs, take means, cut 2.5% at each end.
        random = np.random.default_rng(7)
        means = random.choice(returns, (20_000, len(returns))).mean(axis=1)
        ends = np.percentile(means, [2.5, 97.5])
        told = [float(row["mean_low"]), float(row["mean_high"])]
        assert told == pytest.approx(ends, abs=0.15 * np.ptp(ends) + 1e-9)


def committed_scores():
    """Scores between the lowest and the highest run of a task, tasks with equal weight."""
    scores = {label: [] for label in FILES}
    for task in sorted(FOLDERS):
        returns = {label: committed(task, label) for label in FILES}
        low = min(values.min() for values in returns.values())
        high = max(values.max() for values in returns.values())
        for label, values in returns.items():
            scores[label].append((values - low) / (high - low))
    return scores


def aggregates_by_hand(tasks):
    # Acrobot has 5 runs and MountainCar 10: each of the 5 stands for two.
    pooled = np.concatenate([np.repeat(scores, 10 // len(scores)) for scores in tasks])
    means = [scores.mean() for scores in tasks]
    gaps = [np.mean(np.maximum(1 - scores, 0)) for scores in tasks]
    return {
        "IQM": iqm(pooled),
        "mean": np.mean(means),
        "median": np.median(means),
        "optimality gap": np.mean(gaps),
    }


def test_aggregates_equal_those_by_hand_with_their_intervals(report):
    told = {(r["algorithm"], r["aggregate"]): r for r in read_table(report / "aggregates.csv")}
    random = np.random.default_rng(3)
    for label, tasks in committed_scores().items():
        expected = aggregates_by_hand(tasks)
        resamples = [
            aggregates_by_hand([random.choice(scores, len(scores)) for scores in tasks])
            for _ in range(3000)
        ]
        for name, value in expected.items():
            row = told[label, name]
            assert float(row["value"]) == pytest.approx(value)
            ends = np.percentile([resample[name] for resample in resamples], [2.5, 97.5])
            interval = [float(row["low"]), float(row["high"])]
            assert interval == pytest.approx(ends, abs=0.15 * np.ptp(ends) + 1e-9)
            assert row["tasks"] == "Acrobot-v1 MountainCar-v0"
    assert len(told) == 12


def test_the_probability_of_improvement_is_the_share_of_pairs(report):
    rows = read_table(report / "improvement.csv")
    assert [(row["algorithm"], row["over"]) for row in rows] == [
        ("MeDQN(U)", "DQN"),
        ("MeDQN(U)", "DQN(S)"),
        ("DQN", "DQN(S)"),
    ]
    random = np.random.default_rng(5)
    for row in rows:
        pairs = [(committed(t, row["algorithm"]), committed(t, row["over"])) for t in FOLDERS]

        def share(xs, ys):
            won = [1.0 if x > y else 0.5 if x == y else 0.0 for x, y in product(xs, ys)]
            return sum(won) / len(won)

        assert float(row["value"]) == pytest.approx(np.mean([share(*pair) for pair in pairs]))
        resampled = [
            np.mean([share(*(random.choice(s, len(s)) for s in pair)) for pair in pairs])
            for _ in range(1000)
        ]
        ends = np.percentile(resampled, [2.5, 97.5])
        interval = [float(row["low"]), float(row["high"])]
        assert interval == pytest.approx(ends, abs=0.2 * np.ptp(ends) + 1e-9)


def test_the_example_in_the_docs_is_of_the_results_in_the_docs():
    rows = read_table(ROOT / "docs/results/report/returns.csv")
    found = {(row["task"], row["algorithm"]): float(row["mean"]) for row in rows}
    for task, label in product(FOLDERS, FILES):
        assert found[task, label] == pytest.approx(committed(task, label).mean())
    runs = read_table(ROOT / "docs/results/report/runs.csv")
    there = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/results/fig*/raw/*.json")}
    assert {f"{row['run']}.json" for row in runs} == there, "run the command of docs/report.md"


def test_our_shares_of_pairs_are_rliables():
    from rliable import metrics

    random = np.random.default_rng(0)
    first, second = random.integers(0, 6, (7, 3)) / 2, random.integers(0, 6, (5, 3)) / 2
    ours = improvement(list(first.T), list(second.T), 100, 0)
    assert ours.value == pytest.approx(metrics.probability_of_improvement(first, second))


def test_with_as_many_runs_everywhere_the_aggregates_are_rliables():
    from rliable import metrics

    scores = np.random.default_rng(0).normal(size=(7, 3))
    found = aggregate({"a": list(scores.T)}, 100, 0)["a"]
    assert found["IQM"].value == pytest.approx(metrics.aggregate_iqm(scores))
    assert found["optimality gap"].value == pytest.approx(metrics.aggregate_optimality_gap(scores))


def test_memory_and_time_are_those_of_the_summaries(report):
    runs = read_table(report / "runs.csv")
    assert len(runs) == 45
    for row in runs:
        record = json.loads((ROOT / f"{row['run']}.json").read_text())
        summary = record["summary"]
        assert float(row["replay_bytes"]) == pytest.approx(summary["buffer_mb"] * 1e6)
        assert float(row["peak_rss_mb"]) == summary["peak_rss_mb"]
        # 1,000 of the 100,000 steps are the warm-up, which the speed leaves out.
        seconds = 99_000 / summary["steps_per_s"]
        assert float(row["train_seconds"]) == pytest.approx(seconds)


def test_the_page_has_the_numbers_and_the_protocol_of_each_table_and_figure(report):
    text = (report / "README.md").read_text()
    assert text.startswith("# Two tasks\n")
    returns = committed("MountainCar-v0", "MeDQN(U)")
    assert f"| MeDQN(U) | {returns.mean():.1f} [" in text
    protocol = (
        "training return, mean of the last 20 training episodes at the end of 100,000 env steps, "
        "epsilon 0.01, rewards not clipped, episodes cut at 1,000 steps; 10 runs each"
    )
    few = "episodes cut at 500 steps; 5 runs each: intervals are rough"
    sections = text.split("\n## ")[1:5]
    assert all(protocol in section and few in section for section in sections)
    for name in FIGURES:
        assert f"({name}.png)" in text
        drawing = (report / f"{name}.svg").read_text()
        words = " ".join(re.findall(r">([^<>]+)</text>", drawing))
        assert "epsilon 0.01" in words
        assert "5 runs each: intervals are rough" in words
        assert "MeDQN(U)" in words
        with Image.open(report / f"{name}.png") as picture:
            assert len(np.unique(np.asarray(picture.convert("L")))) > 50
    assert str(ROOT) not in (report / "protocol.csv").read_text()


def test_the_same_seed_gives_the_same_files_and_another_other_intervals(tmp_path, request):
    flags = [ROOT / "docs/results/fig4b", "--bootstrap", 100, "--out"]
    run_report(*flags, tmp_path / "once")
    state = np.random.get_state()[1].copy()
    run_report(*flags, tmp_path / "again")
    assert (np.random.get_state()[1] == state).all()  # the report draws from its own numbers
    for path in sorted((tmp_path / "once").iterdir()):
        if path.name != "README.md":  # which has the name of the folder
            assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    request.getfixturevalue("no_figures")
    run_report(*flags, tmp_path / "other", "--seed", 1)
    for name in ("aggregates.csv", "improvement.csv", "returns.csv", "curves.csv"):
        assert (tmp_path / "once" / name).read_text() != (tmp_path / "other" / name).read_text()


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
    assert "one run has no interval" in text


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
        recorded("A", "DQN", 1, buffer_size=10_000),  # its default: no difference
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


def test_raw_folders_and_run_folders_are_found_once():
    raw = ROOT / "docs/results/fig4b/raw"
    files = [*find_runs(raw), *find_runs(raw.parent)]
    runs, left_out = read_runs(files)
    assert (len(files), len(runs), left_out) == (30, 15, [])


def write_atari_run(folder, game, algo, seed, evaluations, **flags):
    """A run folder as the Atari script leaves it, without what a report does not read."""
    task = f"{game}NoFrameskip-v4"
    settings = resolve_settings(AtariSettings, algo=algo, task=task, overrides=flags)
    folder.mkdir(parents=True)
    config = {"task": task, "algo": algo, "seed": seed, "settings": settings.written()}
    (folder / "config.json").write_text(json.dumps(config))
    steps = 100_000 * len(evaluations)
    summary = {"status": "finished", "env_steps": steps, "steps_per_s": 200.0}
    summary |= {"peak_rss_mb": 1500.0, "buffer_mb": 20.0 if algo == "medqn" else 7091.0}
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
    assert "rewards not clipped, whole games of at most 27,000 steps" in text
    assert "Random and human player: as listed by DQN Zoo; from Wang et al. 2016" in text
    # Its warm-up is not part of its steps.
    assert {row["train_seconds"] for row in read_table(tmp_path / "runs.csv")} == {"1000.0"}


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
    results = ROOT / "docs/results/fig4b"
    assert "'none' is not a folder" in error_of(capsys, "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "argument RUNS:" in error_of(capsys, empty)
    error = error_of(capsys, results, "--metric", "eval", "--out", tmp_path)
    assert error.endswith("argument --metric: eval is not in any of the runs; take --metric train")
    error = error_of(capsys, results, "--bounds", "Pong=0:1", "--out", tmp_path)
    assert "argument --bounds: Pong is no task of these runs; they have Acrobot-v1" in error
    assert "LOW below HIGH" in error_of(capsys, results, "--bounds", "Acrobot-v1=1:0")
    assert "at least 100" in error_of(capsys, results, "--bootstrap", "5")
    (tmp_path / "file").touch()
    assert "argument --out:" in error_of(capsys, results, "--out", tmp_path / "file")
    damaged = tmp_path / "log/config.json"
    damaged.parent.mkdir()
    damaged.write_text("{")
    assert "has no run to report" in error_of(capsys, tmp_path / "log", "--out", tmp_path)
    monkeypatch.setitem(sys.modules, "rliable", None)
    assert "pip install 'medqn-tianshou[report]'" in error_of(capsys, results)
