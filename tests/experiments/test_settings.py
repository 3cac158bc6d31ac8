"""The settings files: every value has a source, and every combination builds a policy."""

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from medqn_tianshou.envs.atari import atari_tasks
from medqn_tianshou.experiments import atari
from medqn_tianshou.experiments.settings import load_settings, resolve_settings

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
    settings = resolve_settings("atari", algo="medqn", task=f"{game}NoFrameskip-v4")
    assert settings["lambda_end"].value == lambda_end
    assert settings["step_per_collect"].value == c_current
    assert settings["buffer_size"].value == 100_000
    assert settings["lambda_end"].source == ("ours" if game == "Breakout" else "release")


def test_dqn_is_the_papers_baseline():
    settings = resolve_settings("atari", algo="dqn", task="QbertNoFrameskip-v4")
    values = {name: setting.value for name, setting in settings.items()}
    assert values["buffer_size"] == 1_000_000
    assert values["step_per_collect"] == 10
    assert values["lambda_start"] == values["lambda_end"] == 0.0
    assert values["epoch"] * values["step_per_epoch"] == 12_500_000


def test_a_flag_wins_and_is_named_as_the_source():
    settings = resolve_settings(
        "atari", algo="medqn", task="QbertNoFrameskip-v4", flags={"lambda_end": 0.0, "lr": None}
    )
    assert (settings["lambda_end"].value, settings["lambda_end"].source) == (0.0, "flag")
    assert settings["lr"].source == "tianshou"


@pytest.mark.parametrize("algo", ATARI["algo"])
@pytest.mark.parametrize("task", [*ATARI["task"], "PongNoFrameskip-v4"])
def test_every_setting_builds_a_policy(algo, task):
    parser = atari.make_parser()
    args = parser.parse_args(["--task", task, "--algo", algo])
    settings = atari.resolve(parser, args)
    envs = SimpleNamespace(
        observation_space=[spaces.Box(0, 255, (4, 84, 84), np.uint8)],
        action_space=[spaces.Discrete(6)],
    )
    policy = atari.make_policy(settings, device="cpu", envs=envs, sampler_seed=0)
    total = settings["epoch"].value * settings["step_per_epoch"].value
    policy.set_env_step(total)
    assert policy.consolidation_coef == settings["lambda_end"].value
    assert (policy.n_step, policy.freq, policy.is_double) == (3, 500, False)
    assert policy.optim.defaults["lr"] == 1e-4
