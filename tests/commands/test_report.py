"""The command medqn report: its numbers equal those worked out here by other means."""

import json
import re
from itertools import product

import numpy as np
import pytest
from PIL import Image
from report_helpers import (
    ALGORITHMS,
    CAMPAIGN,
    SEEDS,
    copy_results,
    iqm,
    read_table,
    run_report,
)
from scripts import ROOT

from medqn_tianshou.commands.report import page
from medqn_tianshou.commands.report.statistics import aggregate, improvement

pytestmark = pytest.mark.slow

pytest.importorskip("rliable")

FIGURES = (
    "learning_curves", "final_returns", "aggregates", "improvement",
    "return_replay", "return_rss", "return_time",
)  # fmt: skip


def final_returns(task, label, window=20, seeds=None):
    """Final returns straight from the files: mean of the last episodes of each run."""
    runs = CAMPAIGN / task / ALGORITHMS[label]
    return np.array(
        [
            np.mean([float(row["return"]) for row in read_table(path)[-window:]])
            for path in (runs / f"{seed}/episodes.csv" for seed in range(seeds or SEEDS[task]))
        ]
    )


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes most of the time."""
    monkeypatch.setattr(page, "draw_figures", lambda out, analysis: [])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return copy_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def report(tmp_path_factory, folders):
    out = tmp_path_factory.mktemp("report")
    run_report(*folders, "--out", out, "--title", "Two tasks", "--bootstrap", 3000)
    return out


def test_final_returns_are_those_of_the_last_episodes(report):
    rows = {(row["task"], row["algorithm"]): row for row in read_table(report / "returns.csv")}
    assert rows.keys() == set(product(SEEDS, ALGORITHMS))
    for (task, label), row in rows.items():
        returns = final_returns(task, label)
        assert int(row["runs"]) == len(returns)
        assert float(row["mean"]) == pytest.approx(returns.mean())
        assert float(row["median"]) == pytest.approx(np.median(returns))
        assert float(row["lowest"]) == pytest.approx(returns.min())
        last_100 = final_returns(task, label, window=100)
        assert float(row["mean_last_100"]) == pytest.approx(last_100.mean())
        error = last_100.std() / np.sqrt(len(last_100))
        assert float(row["standard_error_last_100_ddof_0"]) == pytest.approx(error)
        assert float(row["highest"]) == pytest.approx(returns.max())
        # The bootstrap by hand: resample runs, take means, cut 2.5% at each end.
        random = np.random.default_rng(7)
        means = random.choice(returns, (20_000, len(returns))).mean(axis=1)
        ends = np.percentile(means, [2.5, 97.5])
        told = [float(row["mean_low"]), float(row["mean_high"])]
        assert told == pytest.approx(ends, abs=0.15 * np.ptp(ends) + 1e-9)


def scores_by_hand():
    """Scores between the lowest and the highest run of a task, tasks with equal weight."""
    scores = {label: [] for label in ALGORITHMS}
    for task in sorted(SEEDS):
        returns = {label: final_returns(task, label) for label in ALGORITHMS}
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
    for label, tasks in scores_by_hand().items():
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
        pairs = [(final_returns(t, row["algorithm"]), final_returns(t, row["over"])) for t in SEEDS]

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


def test_the_published_report_is_of_the_published_runs():
    rows = read_table(ROOT / "docs/results/A1/returns.csv")
    found = {(row["task"], row["algorithm"]): row for row in rows}
    for task, label in product(SEEDS, ALGORITHMS):
        row = found[task, label]
        returns = final_returns(task, label, seeds=int(row["runs"]))
        assert float(row["mean"]) == pytest.approx(returns.mean())
    runs = read_table(ROOT / "docs/results/A1/runs.csv")
    there = {str(path.parent.relative_to(ROOT)) for path in CAMPAIGN.rglob("config.json")}
    assert {row["run"] for row in runs} == there, "run python campaign/page.py"


def test_our_shares_of_pairs_are_rliables():
    from rliable import metrics

    random = np.random.default_rng(0)
    first, second = random.integers(0, 6, (7, 3)) / 2, random.integers(0, 6, (5, 3)) / 2
    assert improvement([np.array([1.0, 2.0])], [np.array([0.0])], 100, 0).low is None
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
        algo, seed = ALGORITHMS[row["algorithm"]], row["seed"]
        summary = json.loads((CAMPAIGN / row["task"] / algo / seed / "summary.json").read_text())
        assert float(row["replay_bytes"]) == pytest.approx(summary["buffer_mb"] * 1e6)
        assert float(row["peak_rss_mb"]) == summary["peak_rss_mb"]
        # 1,000 of the 100,000 steps are the warm-up, which the speed leaves out.
        seconds = 99_000 / summary["steps_per_s"]
        assert float(row["train_seconds"]) == pytest.approx(seconds)


def test_the_page_has_the_numbers_and_the_protocol_of_each_table_and_figure(report):
    text = (report / "README.md").read_text()
    assert text.startswith("# Two tasks\n")
    returns = final_returns("MountainCar-v0", "MeDQN(U)")
    assert f"| MeDQN(U) | {returns.mean():.1f} [" in text
    protocol = (
        "training return, mean of the last 20 training episodes at the end of 100,000 env steps, "
        "epsilon 0.01, rewards not clipped, episodes truncated at 1,000 steps; 10 runs each"
    )
    few = "episodes truncated at 500 steps; 5 runs each: intervals are rough"
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


def test_the_same_seed_gives_the_same_files_and_another_other_intervals(tmp_path, request, folders):
    flags = [folders[1], "--bootstrap", 100, "--out"]
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
