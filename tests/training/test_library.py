"""A training from Python, without a command line."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from resume_runs import at_collect, run_folder
from scripts import ROOT

from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.experiments.lowdim import LOWDIM
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.options import CheckpointInterval, RunOptions
from medqn_tianshou.training.run_config import read_config

SHORT = {"steps": 500, "warmup_steps": 100, "max_episode_steps": 45}


def options(logdir, **more):
    return RunOptions(logdir=logdir, show_progress=False, **more)


def test_a_training_runs_and_its_folder_names_its_family(tmp_path):
    settings = LOWDIM.settings("MountainCar-v0", algo="medqn-u", **SHORT)
    training = LOWDIM.make_training(settings, options(tmp_path))
    summary = training.run()
    assert (summary.status, summary.env_steps) == ("finished", 500)
    config = read_config(run_folder(tmp_path))
    assert (config.family, config.arguments) == ("lowdim", None)
    assert config.identity == settings.identity
    assert config.settings["steps"].source == "flag"
    assert config.settings["lr"].source == "paper"


def test_a_stopped_training_is_resumed_to_the_same_parameters(tmp_path, monkeypatch):
    settings = LOWDIM.settings("Catcher", algo="dqn", **SHORT)
    whole = LOWDIM.make_training(settings, options(tmp_path / "whole"))
    whole.run()
    often = CheckpointInterval(env_steps=50)
    training = LOWDIM.make_training(settings, options(tmp_path / "part", checkpoint_every=often))

    def stop():
        training.stop_signal = 15

    with at_collect(monkeypatch, 200, stop):
        assert training.run().status == "interrupted"
    folder = run_folder(tmp_path / "part")
    resumed = LOWDIM.make_training(settings, options(tmp_path / "part", resume=folder))
    assert resumed.run().status == "finished"
    states = [t.policy.state_dict() for t in (whole, resumed)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    other = replace(settings, lr=0.5)
    with pytest.raises(ConfigError, match=r"resume=.* has finished"):
        LOWDIM.make_training(other, options(tmp_path / "part", resume=folder))


def test_a_training_of_another_network_size_is_one_setting_away(tmp_path):
    settings = LOWDIM.settings("Catcher", algo="dqn", hidden_sizes=(8, 4), **SHORT)
    training = LOWDIM.make_training(settings, options(tmp_path))
    assert sorted({p.shape[0] for p in training.policy.model.parameters()})[-1] == 8
    training.abandon()


@pytest.mark.parametrize(("steps", "gradient_steps"), [(100_000, 400), (2_000, 100)])
def test_a_long_run_logs_its_losses_a_thousand_times(tmp_path, steps, gradient_steps):
    settings = LOWDIM.settings("MountainCar-v0", algo="medqn-u", steps=steps)
    assert (settings.step_per_collect, settings.consolidation_epochs) == (1, 4)
    training = LOWDIM.make_training(settings, options(tmp_path))
    assert training.logger.update_interval == gradient_steps
    training.abandon()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_states_what_a_run_needs(family):
    family = FAMILIES[family]
    settings = family.settings()
    if family.name not in ("gym", "minatar"):
        assert (settings.task, settings.algo) == (family.tasks[0], family.algorithms[0])
    assert settings.total_env_steps >= settings.env_steps_per_epoch > 0
    clocks = settings.target_copy_env_steps, settings.target_copy_gradient_steps
    assert sum(clock is not None for clock in clocks) == 1
    assert family.observation_space(settings).shape


@pytest.mark.process
def test_the_snippet_of_the_docs_runs_without_argparse(tmp_path):
    page = (ROOT / "docs/own_code.md").read_text()
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "LOWDIM" in c]
    code = code.replace("steps=20_000", "steps=1_100").replace('"log"', repr(str(tmp_path)))
    assert "argparse" not in code
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "finished after 1,100 env steps" in result.stdout
    assert read_config(run_folder(tmp_path)).family == "lowdim"
