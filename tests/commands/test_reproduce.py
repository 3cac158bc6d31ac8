"""The figure commands: finished runs are kept, missing ones run, numbers come from files."""

import csv
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from scripts import ROOT

from medqn_tianshou.commands.report.curves import (
    Curve,
    final_returns,
    format_mean,
    mean_and_error,
    on_grid,
    read_curve,
)
from medqn_tianshou.commands.reproduce import lines_of
from medqn_tianshou.commands.sweep.file import read_sweep
from medqn_tianshou.experiments.figures import load_figures

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
        lines = lines_of(sweep)
        assert len({line.slug for line in lines}) == len(lines)
        plans = sweep.plans(tmp_path)  # by the real parsers
        by_line = [plan for line in lines for plan in line.sweep.plans(tmp_path)]
        assert {plan.name for plan in by_line} == {plan.name for plan in plans}
        assert len(plans) == len(lines) * figure.seeds


def test_lines_are_named_as_their_variants_or_algorithms():
    labels = {name: [line.label for line in lines_of(read_sweep(figure.path))]
              for name, figure in FIGURES.items()}  # fmt: skip
    assert labels["fig4a"] == ["MeDQN(U)", "DQN", "DQN(S)"]
    assert labels["overlap"][1] == "MeDQN(U), overlap"
    assert [line.slug for line in lines_of(read_sweep(FIGURES["overlap"].path))][:2] == [
        "MeDQN_U",
        "MeDQN_U___overlap",
    ]


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

    finals = []
    for path in (first, second):
        with path.open() as file:
            returns = [float(row["return"]) for row in csv.DictReader(file)]
        assert len(returns) >= 6
        finals.append(np.mean(returns[-3:]))
    error = np.std(finals, ddof=1) / np.sqrt(2)
    table = (out / "README.md").read_text()
    (row,) = re.findall(r"\| DQN, short \| (.*) ± (.*) \| .* \| 2 \|", table)
    assert [float(value) for value in row] == pytest.approx([np.mean(finals), error], abs=0.05)
    assert table in result.stdout
    assert (out / "short.png").stat().st_size > 10_000

    refused = subprocess.run(
        [*command(out), "--steps", "500"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "--steps: 500 does not fit the runs of 400 steps" in refused.stderr


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
    assert final_returns([curve, Curve(np.array([]), np.array([]), 40)]).tolist() == [-5.5]


def test_a_curve_holds_its_value_between_episodes_and_is_smoothed():
    curve = Curve(np.array([10.0, 20.0]), np.array([1.0, 2.0]), 30)
    smooth = on_grid(curve, np.array([0.0, 10.0, 19.0, 20.0, 30.0]))
    assert smooth == pytest.approx([1, 1, 1, 1.1, 1.19])


def test_mean_and_standard_error():
    mean, error = mean_and_error(np.array([1.0, 2.0, 6.0]))
    assert (mean, error) == pytest.approx((3.0, np.sqrt(7.0 / 3.0)))
    assert mean_and_error(np.array([4.0])) == (4.0, 0.0)
