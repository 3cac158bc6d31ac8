"""What a run folder says of a run: its policies and its summary."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from resume_runs import SCRIPTS, at_collect, run_folder, train

from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.training.run_folder import ProgressRow, Summary, best_and_final

FLAGS = "--task MountainCar-v0 --steps 600 --warmup-steps 100 --max-episode-steps 40"
FLAGS += " --eval-every 200 --eval-episodes 1"


def row(env_step, gradient_step, eval_return):
    return ProgressRow(
        env_step=env_step, gradient_step=gradient_step, eval_return_mean=eval_return,
        eval_return_std=0.0, train_return=None, steps_per_s=None, rss_mb=1.0, buffer_mb=1.0,
    )  # fmt: skip


def test_the_summary_shows_a_small_buffer_in_kilobytes_and_large_numbers_with_separators():
    summary = Summary(
        status="finished", env_steps=5000, gradient_steps=5000, best_return=12345.678,
        best_env_step=4000, final_return=-1000.0, steps_per_s=1234.5, peak_rss_mb=764.4,
        buffer_mb=0.0016, buffer_transitions=32,
    )  # fmt: skip
    lines = summary.text(Path("log/run")).splitlines()
    assert "  replay buffer 1.6 kB, 32 transitions" in lines
    assert "  best return   12,345.68 at env step 4,000" in lines
    assert "  speed         1,234.50 steps/s" in lines
    assert "  peak RSS      764.4 MB" in lines


def test_the_untrained_network_is_neither_best_nor_final():
    assert best_and_final([row(0, 0, 500.0)], evaluated=True)["final_return"] is None
    rows = [row(0, 0, 500.0), row(100, 25, 10.0), row(200, 50, 9.0)]
    expected = {"best_return": 10.0, "best_env_step": 100, "final_return": 9.0}
    assert best_and_final(rows, evaluated=True) == expected


@pytest.mark.slow
def test_the_first_trained_policy_is_the_best_also_where_no_evaluation_beats_the_first(tmp_path):
    folder = train("lowdim", tmp_path, *FLAGS.split())  # every episode returns -40
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["best_return"], summary["best_env_step"]) == (-40.0, 200)
    best, last = (
        read_parameters(folder / f"policy_{name}.safetensors") for name in ("best", "last")
    )
    assert any(not torch.equal(best[name], last[name]) for name in best)


@pytest.mark.slow
def test_a_run_that_is_stopped_before_its_first_evaluation_has_no_best_policy(
    tmp_path, monkeypatch
):
    flags = [*FLAGS.split(), "--no-progress", "--logdir", str(tmp_path)]
    with at_collect(monkeypatch, 50, lambda: os.kill(os.getpid(), signal.SIGINT)):
        assert SCRIPTS["lowdim"].main(flags) == 130
    folder = run_folder(tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["gradient_steps"] > 0
    assert summary["final_return"] is None
    assert not list(folder.glob("policy_best*"))
    assert (folder / "policy_last.safetensors").exists()
