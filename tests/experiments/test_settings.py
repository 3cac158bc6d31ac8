"""The settings files: every value has a source, and every combination builds a policy."""

import json
import pickle
from types import SimpleNamespace
from typing import Literal, get_args

import numpy as np
import pytest
from gymnasium import spaces

from medqn_tianshou.algorithm import heads, loss, samplers
from medqn_tianshou.envs import atari as atari_envs
from medqn_tianshou.envs.atari import atari_tasks
from medqn_tianshou.experiments.atari import ATARI as FAMILY
from medqn_tianshou.experiments.gymnasium import GYM
from medqn_tianshou.experiments.lowdim import LOWDIM
from medqn_tianshou.experiments.minatar import MINATAR
from medqn_tianshou.experiments.settings import (
    AtariSettings,
    load_settings,
    resolve_settings,
    settings_of,
)
from medqn_tianshou.experiments.settings import atari as atari_settings
from medqn_tianshou.training import consolidation
from medqn_tianshou.training import settings as training_settings
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.run_config import RunConfig

ATARI = load_settings("atari")


@pytest.mark.parametrize("family", ["atari", "lowdim", "minatar"])
def test_every_value_has_a_known_source(family):
    data = load_settings(family)
    tables = [
        data["common"],
        *data["algo"].values(),
        *(table for algos in data["task"].values() for table in algos.values()),
    ]
    entries = [entry for table in tables for entry in table.values()]
    assert len(entries) > 30
    for entry in entries:
        assert set(entry) == {"value", "source"}
        assert entry["source"] in data["sources"]


def test_every_named_task_exists():
    assert set(ATARI["task"]) <= set(atari_tasks())


@pytest.mark.parametrize(
    ("game", "lambda_end", "c_current"),
    [
        ("Qbert", 2, 20),
        ("Phoenix", 2, 20),
        ("BattleZone", 4, 40),
        ("DoubleDunk", 4, 40),
        ("NameThisGame", 4, 40),
        ("Breakout", 4, 40),  # not in the paper: our choice
    ],
)
def test_medqn_has_the_papers_choice_for_each_game(game, lambda_end, c_current):
    settings = resolve_settings(AtariSettings, algo="medqn", task=f"{game}NoFrameskip-v4")
    assert settings.lambda_end == lambda_end
    assert settings.step_per_collect == c_current
    assert settings.buffer_size == 100_000
    assert settings.sources["lambda_end"] == ("ours" if game == "Breakout" else "release")


def test_dqn_is_the_papers_baseline():
    settings = resolve_settings(AtariSettings, algo="dqn", task="QbertNoFrameskip-v4")
    assert settings.buffer_size == 1_000_000
    assert settings.step_per_collect == 10
    assert settings.lambda_start == settings.lambda_end == 0.0
    assert settings.epoch * settings.step_per_epoch == settings.total_env_steps == 12_500_000


def test_a_flag_wins_and_is_named_as_the_source():
    settings = resolve_settings(
        AtariSettings, algo="medqn", task="QbertNoFrameskip-v4", overrides={"lambda_end": 0.0}
    )
    assert (settings.lambda_end, settings.sources["lambda_end"]) == (0.0, "flag")
    assert settings.sources["lr"] == "tianshou"


@pytest.mark.parametrize("algo", ATARI["algo"])
@pytest.mark.parametrize("task", [*ATARI["task"], "PongNoFrameskip-v4"])
def test_every_setting_builds_a_policy(algo, task):
    settings = FAMILY.settings(task, algo=algo)
    envs = SimpleNamespace(
        observation_space=[spaces.Box(0, 255, (4, 84, 84), np.uint8)],
        action_space=[spaces.Discrete(6)],
    )
    policy = FAMILY.make_policy(settings, device="cpu", envs=envs, sampler_seed=0)
    policy.set_env_step(settings.epoch * settings.step_per_epoch)
    assert policy.consolidation_coef == settings.lambda_end
    assert (policy.n_step, policy.freq, policy.is_double) == (3, 500, False)
    assert policy.optim.defaults["lr"] == 1e-4


@pytest.mark.parametrize(
    ("declared", "meant"),
    [
        (consolidation.Sampling, Literal[samplers.Sampling, "reservoir"]),
        (consolidation.ConsolidationKind, loss.ConsolidationKind),
        (consolidation.Reduction, loss.Reduction),
        (get_args(training_settings.Head)[0], heads.Head),
        (atari_settings.Backend, atari_envs.Backend),
    ],
)
def test_choices_are_those_of_the_code_they_are_for(declared, meant):
    assert get_args(declared) == get_args(meant)


@pytest.mark.parametrize(
    ("overrides", "setting", "remedy"),
    [
        ({"lr": 0.0}, "lr", "must be a number above 0"),
        ({"batch_size": 1.5}, "batch_size", "must be a whole number of at least 1"),
        ({"batch_size": True}, "batch_size", "must be a whole number"),
        ({"double": 1}, "double", "must be a bool"),
        ({"replay": "zip"}, "replay", "choose from compact, raw"),
        ({"buffer_size": 20}, "buffer_size", "use at least 32"),
        ({"training_num": 3}, "training_num", "choose a divisor"),
        ({"step_per_collect": 0}, "step_per_collect", "must be a whole number of at least 1"),
        ({"batch_size": None}, "batch_size", "must be a whole number"),
        ({"steps": 0}, "steps", "must be a whole number of at least 1"),
        ({"bufer_size": 20}, "bufer_size", "did you mean buffer_size?"),
        ({"algo": "sarsa"}, "algo", "choose from medqn-r, dqn"),
        ({"task": "Qbrt"}, "task", "did you mean QbertNoFrameskip-v4?"),
    ],
)
def test_a_bad_value_raises_an_error_with_setting_value_and_remedy(overrides, setting, remedy):
    with pytest.raises(ConfigError) as error_info:
        FAMILY.settings(**overrides)
    error = error_info.value
    assert (error.setting, error.value) == (setting, overrides[setting])
    assert remedy in error.remedy
    assert str(error) == f"{setting}={overrides[setting]!r} {error.remedy}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


def test_settings_of_a_run_folder_are_those_it_was_trained_with():
    settings = LOWDIM.settings("Catcher", algo="dqn", seed=3, lr=0.5)
    written = json.loads(json.dumps(settings.written()))
    content = {"task": "Catcher", "algo": "dqn", "seed": 3, "settings": written}
    config = RunConfig.from_json({**content, "family": "lowdim"})
    assert settings_of(config) == settings
    assert settings_of(config).sources == settings.sources
    assert config.identity == settings.identity
    # Earlier versions wrote no family, and had a setting that is gone.
    written["compile"] = {"value": False, "source": "ours"}
    assert settings_of(RunConfig.from_json(content)) == settings


def test_a_share_of_the_run_follows_its_length():
    assert MINATAR.settings(algo="pqn").eps_decay_steps == 500_000
    assert MINATAR.settings(algo="stream-q", steps=1_000_000).eps_decay_steps == 200_000
    assert GYM.settings(algo="stream-q", steps=3).eps_decay_steps == 1
    assert MINATAR.settings(algo="pqn", eps_decay_steps=7).eps_decay_steps == 7
