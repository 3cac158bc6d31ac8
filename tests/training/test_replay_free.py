"""Runs of PQN and Stream-Q: the same folder as all others, in the report, and resumed."""

import csv
import json

import numpy as np
import pytest
import torch

from medqn_tianshou.commands.agent import Agent
from medqn_tianshou.commands.report.runs import read_run
from medqn_tianshou.experiments.gymnasium import GYM
from medqn_tianshou.experiments.minatar import MINATAR
from medqn_tianshou.training.checkpoint import read_checkpoint, write_checkpoint
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.options import CheckpointInterval, RunOptions
from medqn_tianshou.training.replay_free import make_learner
from medqn_tianshou.training.run_folder import RunFolder

NAMES = {"pqn": "PQN", "stream-q": "Stream-Q"}


def train(family, algo, logdir, steps=9_000, stop_at=None, **options):
    settings = family.settings(algo=algo, steps=steps)
    training = family.make_training(settings, RunOptions(logdir=logdir, **options))
    if stop_at is not None:
        step = training._step

        def stopping():
            step()
            if training.env_step >= stop_at:
                training.stop_signal = 15

        training._step = stopping
    return training, training.run()


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("algo", NAMES)
def test_a_run_writes_the_folder_that_a_report_reads(tmp_path, algo):
    steps = 9_000 if algo == "pqn" else 600
    training, summary = train(MINATAR, algo, tmp_path, steps)
    folder = training.run_folder.path
    assert summary.status == "finished"
    assert steps <= summary.env_steps < steps + 128
    assert summary.gradient_steps == (2 * 2 * 32 if algo == "pqn" else 600)
    run = read_run(folder / "config.json")
    assert (run.algorithm, run.status, run.task) == (NAMES[algo], "finished", "breakout")
    assert run.peak_rss_mb > 50
    assert len(run.curve("train", None).value) > 0
    assert [row["gradient_step"] for row in rows(folder / "progress.csv")][-1] == str(
        summary.gradient_steps
    )
    episodes = rows(folder / "episodes.csv")
    assert sum(int(row["length"]) for row in episodes) <= summary.env_steps
    assert list(folder.glob("events.out.tfevents.*"))
    assert json.loads((folder / "summary.json").read_text())["cpu_seconds"] > 0
    moment = next(Agent(folder).play())  # its network plays
    assert moment.q_A.shape == (6,)


@pytest.mark.slow
@pytest.mark.parametrize("algo", NAMES)
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path, algo):
    steps, stop_at = (9_000, 4_500) if algo == "pqn" else (500, 260)
    whole, _ = train(GYM, algo, tmp_path / "whole", steps)
    stopped, summary = train(GYM, algo, tmp_path / "stopped", steps, stop_at)
    assert (summary.status, stopped.checkpoints.paths() != []) == ("interrupted", True)
    interval = CheckpointInterval(minutes=10)
    resumed, summary = train(
        GYM, algo, tmp_path, steps, resume=stopped.run_folder.path, checkpoint_every=interval
    )
    assert summary.status == "finished"
    one, other = (training.learner.network.state_dict() for training in (whole, resumed))
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=0)
    tables = [rows(each.run_folder.path / "episodes.csv") for each in (whole, resumed)]
    assert tables[0] == tables[1]


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [1_500, 8_500])
def test_a_stopped_run_logs_all_rows_and_ends_where_it_should(tmp_path, stop_at):
    whole, ended = train(GYM, "pqn", tmp_path / "whole")
    run, summary = train(GYM, "pqn", tmp_path / "stopped", stop_at=stop_at)
    if summary.status == "interrupted":
        run, summary = train(GYM, "pqn", tmp_path, resume=run.run_folder.path)
    assert (summary.status, summary.env_steps) == ("finished", ended.env_steps)
    assert summary.gradient_steps == ended.gradient_steps
    steps = [
        [row["env_step"] for row in rows(each.run_folder.path / "progress.csv")]
        for each in (whole, run)
    ]
    assert steps[0] == steps[1]


def test_without_clipping_pqn_learns():
    settings = GYM.settings(algo="pqn", max_grad_norm=0)
    network = GYM.make_network(settings, GYM.make_env(settings))
    before = torch.nn.utils.parameters_to_vector(network.parameters()).clone()
    learner = make_learner(settings, network)
    for obs_E in np.random.default_rng(0).normal(size=(32, 128, 4)).astype(np.float32):
        learner.act(obs_E, 0.1)
        learner.observe(np.ones(128), np.zeros(128, bool), obs_E)
    assert learner.gradient_steps == 64
    assert (torch.nn.utils.parameters_to_vector(network.parameters()) != before).any()


def test_a_full_disk_ends_a_run_with_its_first_error_and_without_its_lock(tmp_path, monkeypatch):
    training = GYM.make_training(
        GYM.settings(algo="stream-q", steps=2_000), RunOptions(logdir=tmp_path)
    )

    def fail(row):
        raise OSError(28, f"No space left on device, at {row.env_step}")

    monkeypatch.setattr(training.run_folder, "add_row", fail)
    with pytest.raises(OSError, match="at 1"):
        training.run()
    RunFolder(training.run_folder.path).unlock()


def test_a_second_checkpoint_replaces_the_state_of_one_that_did_not_fit(tmp_path):
    training = GYM.make_training(
        GYM.settings(algo="stream-q", steps=2_000), RunOptions(logdir=tmp_path)
    )
    training._returns.extend([1.0, 2.0])
    training._loss = 3.0
    write_checkpoint(tmp_path / "state", training.state_dict())
    training._loss = 4.0
    for _ in range(2):
        training.load_state_dict(read_checkpoint(tmp_path / "state")[0])
    assert (list(training._returns), training._loss) == ([1.0, 2.0], 3.0)
    training.abandon()


@pytest.mark.parametrize(
    ("algo", "options", "error"),
    [
        ("pqn", {"buffer_size": 100}, "buffer_size=100 has no effect with --algo pqn"),
        ("pqn", {"eval_every": 100}, "has no effect with --algo pqn"),
        ("pqn", {"sampling": "reservoir"}, "has no effect with --algo pqn"),
        ("stream-q", {"max_grad_norm": 1.0}, "max_grad_norm=1.0 has no effect with --algo strea"),
    ],
)
def test_settings_without_a_meaning_are_refused(algo, options, error):
    with pytest.raises(ConfigError, match=error):
        MINATAR.settings(algo=algo, **options)


def test_options_without_a_meaning_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="wandb='x' is not for --algo stream-q"):
        MINATAR.make_training(
            MINATAR.settings(algo="stream-q"), RunOptions(logdir=tmp_path, wandb="x")
        )
