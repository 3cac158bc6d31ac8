"""The figure commands: finished runs are kept, missing ones run, numbers come from files."""

import csv
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scripts import ROOT

from medqn_tianshou.commands import reproduce as reproduce_module
from medqn_tianshou.commands.main import main
from medqn_tianshou.commands.report.curves import (
    Curve,
    final_returns,
    format_mean,
    mean_and_error,
    read_curve,
    smooth,
)
from medqn_tianshou.commands.report.figure_page import best_cells
from medqn_tianshou.commands.reproduce import cells_of, lines_of, with_length
from medqn_tianshou.commands.sweep.file import read_sweep
from medqn_tianshou.experiments.figures import load_figures, read_figure

FIGURES = load_figures()
# One line of a figure, in runs as short as they can be.
SHORT = """
family = "lowdim"
tasks = ["Catcher"]
algorithms = ["dqn"]
seeds = 9

[figure]
title = "A short figure"

[settings]
device = "cpu"

[[variant]]
name = "DQN, short"
warmup-steps = 100
max-episode-steps = 60
return-window = 3
"""
COMMAND = """
import sys
from pathlib import Path
from medqn_tianshou.commands.reproduce import main
from medqn_tianshou.experiments.figures import read_figure
sys.exit(main({"short": read_figure(Path(sys.argv[1]))}, sys.argv[2:]))
"""


def command(out, *flags):
    file = out.parent / "short.toml"
    file.write_text(SHORT)
    words = [sys.executable, "-c", COMMAND, file, "short", "--out", out, "--budget", "400", *flags]
    return list(map(str, words))


def test_every_figure_and_table_outside_atari_has_its_command(tmp_path):
    assert set(FIGURES) == {
        "fig3a", "fig3b", "fig4a", "fig4b", "fig4c", "fig4d",
        "fig5a", "fig5b", "fig5c", "fig5d", "table1", "table2", "overlap",
    }  # fmt: skip
    for figure in FIGURES.values():
        sweep = read_sweep(figure.path)
        assert len(sweep.seeds) == figure.seeds
        sweep = with_length(sweep, seeds=2, steps=None)
        lines = lines_of(sweep)
        assert len({line.slug for line in lines}) == len(lines)
        plans = sweep.plans(tmp_path)  # by the real parsers
        by_line = [plan for line in lines for plan in line.sweep.plans(tmp_path)]
        assert {plan.name for plan in by_line} == {plan.name for plan in plans}
        assert len(plans) == len(lines) * 2


def test_lines_are_named_as_their_variants_or_algorithms():
    labels = {name: [line.label for line in lines_of(read_sweep(figure.path))]
              for name, figure in FIGURES.items()}  # fmt: skip
    assert labels["fig4a"] == ["MeDQN(U)", "DQN", "DQN(S)"]
    assert labels["overlap"][1] == "MeDQN(U), overlap"
    assert [line.slug for line in lines_of(read_sweep(FIGURES["overlap"].path))][:2] == [
        "MeDQN_U",
        "MeDQN_U___overlap",
    ]


def test_grids_are_those_of_the_paper(tmp_path):
    def cells(name):
        lines = lines_of(read_sweep(FIGURES[name].path))
        return {line.label: cells_of(FIGURES[name], line) for line in lines}

    counts = {name: [len(c) for c in cells(name).values()] for name in FIGURES}
    assert counts["fig3a"] == [5] * 6
    assert counts["fig3b"] == [5, 20, 20, 20, 20, 20, 5]
    assert counts["table1"] == [1, 1, 1, 8, 8, 8]
    assert counts["table2"] == [40, 40, 40, 5, 5, 5]
    assert counts["fig4a"] == [1, 1, 1]
    fig3b = cells("fig3b")
    assert list(fig3b)[-2:] == ["DQN, 100", "DQN(S), 32"]
    one = fig3b["DQN, 300"][-1]
    assert one.slug == "DQN__300_lr_0.0001__step-per-collect_8"
    plan = one.sweep.plans(tmp_path)[0]
    expected = {"algo": "dqn", "buffer_size": 300, "lr": 1e-4, "step_per_collect": 8}
    assert expected.items() <= plan.identity.items()
    (small,) = {
        plan.identity["buffer_size"] for plan in fig3b["DQN(S), 32"][0].sweep.plans(tmp_path)
    }
    assert small == 32
    every = [with_length(cell.sweep, 2, None) for of_line in fig3b.values() for cell in of_line]
    assert len({plan.name for sweep in every for plan in sweep.plans(tmp_path)}) == 110 * 2


def test_the_best_cell_of_each_line_is_named_with_how_many_there_are():
    finals = {("a", "lr 1"): np.array([1.0, 3.0]), ("a", "lr 2"): np.array([3.0, 4.0])}
    finals |= {("b", ""): np.array([9.0])}
    assert best_cells(finals) == [("a", ("a", "lr 2"), 2), ("b", ("b", ""), 1)]


@pytest.mark.process
def test_a_killed_command_continues_where_it_stopped(tmp_path):
    out = tmp_path / "short"
    first, second = (out / f"raw/DQN__short_seed{seed}.csv" for seed in (0, 1))
    with subprocess.Popen(
        command(out, "--seeds", "2"), cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while not first.exists():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
    assert not second.exists()
    finished = first.stat().st_mtime_ns

    result = subprocess.run(
        command(out, "--seeds", "2"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert first.stat().st_mtime_ns == finished
    assert not (out / "unfinished").exists()
    assert second.read_text() != first.read_text()
    for path in (first, second):  # published, so they name no folder of this machine
        assert str(tmp_path) not in path.with_suffix(".json").read_text()

    finals, all_means = [], []  # there are less than 100 episodes
    for path in (first, second):
        with path.open() as file:
            returns = [float(row["return"]) for row in csv.DictReader(file)]
        assert len(returns) >= 6
        assert len(returns) < 100
        finals.append(np.mean(returns[-3:]))
        all_means.append(np.mean(returns))
    errors = [np.std(finals, ddof=1) / np.sqrt(2), np.std(all_means, ddof=0) / np.sqrt(2)]
    table = (out / "README.md").read_text()
    (row,) = re.findall(r"\| DQN, short \| (.*) ± (.*) \| .* \| (.*) ± (.*) \| 2 \|", table)
    expected = [np.mean(finals), errors[0], np.mean(all_means), errors[1]]
    assert [float(value) for value in row] == pytest.approx(expected, abs=0.051)
    assert "standard error (ddof 1)" in table
    assert "standard error (ddof 0)" in table
    assert table in result.stdout
    assert (out / "short.png").stat().st_size > 10_000

    refused = subprocess.run(
        [*command(out), "--steps", "500"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "--steps: 500 does not fit the runs of 400 steps" in refused.stderr


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("lrr=1", ("--set.lrr = '1'", "did you mean lr?")),
        ("seed=1", ("--set.seed = '1'", "list it in seeds")),
    ],
)
def test_other_settings_are_flags(tmp_path, error_line, setting, parts):
    out = tmp_path / "out"
    line = error_line(main, "reproduce", "fig4a", "--set", setting, "--out", out)
    for part in ("medqn reproduce: error: argument", *parts):
        assert part in line
    assert not out.exists()


def test_runs_of_other_lines_and_seeds_are_left_to_resume(tmp_path, monkeypatch):
    (tmp_path / "short.toml").write_text(SHORT)
    figure = read_figure(tmp_path / "short.toml")
    lines = lines_of(with_length(read_sweep(figure.path), 1, 400))
    monkeypatch.setattr(reproduce_module, "run_plans", lambda *_, **__: None)
    monkeypatch.setattr(reproduce_module, "write_figure_page", lambda *_: None)
    left = tmp_path / "out/unfinished/runs/DQN--short/Catcher/dqn/1/20260101-120000/config.json"

    def reproduce():
        options = {"out": tmp_path / "out", "retries": 0, "command": ""}
        reproduce_module.reproduce(figure, lines, start_executor=None, **options)

    left.parent.mkdir(parents=True)
    left.write_text("{}")
    reproduce()
    assert left.exists()
    left.unlink()
    reproduce()
    assert not (tmp_path / "out/unfinished").exists()


@pytest.mark.process
def test_a_failed_run_fails_the_command_with_its_reason(tmp_path):
    result = subprocess.run(
        [*command(tmp_path / "out"), "--seeds", "1", "--steps", "50"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "must exceed the 100 steps of --warmup-steps" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_single_run_has_no_standard_error():
    assert format_mean(np.array([54.0]), 0) == "54"
    assert format_mean(np.array([1.0, 2.0, 6.0]), 1) == "3.0 ± 1.5"


def test_returns_are_averaged_over_the_last_episodes(tmp_path):
    path = tmp_path / "episodes.csv"
    path.write_text("env_step,return,length\n10,-1,10\n30,-3,20\n35,-8,5\n")
    curve = read_curve(path, window=2, env_steps=40)
    assert curve.env_step.tolist() == [10, 30, 35]
    assert curve.value.tolist() == [-1, -2, -5.5]
    assert curve.last_100 == -4
    lines = [f"{10 * i},{i},10" for i in range(1, 151)]
    path.write_text("\n".join(["env_step,return,length", *lines, ""]))
    assert read_curve(path, window=2, env_steps=1500).last_100 == np.mean(range(51, 151))
    assert final_returns([curve, replace(curve, value=curve.value + 1)]).tolist() == [-5.5, -4.5]


def test_smoothing_is_a_mean_of_all_points_with_weights_that_decay_by_distance():
    random = np.random.default_rng(0)
    steps = np.sort(random.choice(900, 40, replace=False)).astype(float)
    curve = Curve(steps, random.normal(size=40), 1000)
    grid = np.linspace(0, 1000, 21)  # a grid step is 50
    for place, value in zip(grid, smooth(curve, grid), strict=True):
        weights = [np.exp(-abs(place - step) / 50) for step in steps]
        expected = sum(w * y for w, y in zip(weights, curve.value, strict=True)) / sum(weights)
        assert value == pytest.approx(expected)


def test_smoothing_does_not_shift_an_edge_and_bridges_a_gap():
    steps = np.arange(0.0, 1001.0)
    edge = Curve(steps, np.sign(steps - 500), 1000)
    smoothed = smooth(edge, np.linspace(0, 1000, 101))
    assert smoothed[50] == pytest.approx(0, abs=1e-9)
    assert smoothed[40:61] == pytest.approx(-smoothed[40:61][::-1], abs=1e-3)
    gap = Curve(np.array([0.0, 1e6]), np.array([1.0, 2.0]), 10**6)
    assert smooth(gap, np.linspace(0, 1e6, 1001))[[0, 400, 600, 1000]] == pytest.approx(
        [1, 1, 2, 2]
    )


def test_mean_and_standard_error():
    mean, error = mean_and_error(np.array([1.0, 2.0, 6.0]))
    assert (mean, error) == pytest.approx((3.0, np.sqrt(7.0 / 3.0)))
    assert mean_and_error(np.array([4.0])) == (4.0, 0.0)
    assert mean_and_error(np.array([1.0, 2.0, 6.0]), ddof=0)[1] == pytest.approx(
        np.sqrt(14.0 / 3.0 / 3.0)
    )
