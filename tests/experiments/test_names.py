"""Tasks, algorithms and lengths may be spelt in several ways; a run records one."""

import json

import pytest

from medqn_tianshou.commands.flags import make_train_parser
from medqn_tianshou.commands.train import parse_run
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.run_config import difference, find_runs, read_config


def settings_of(family, *words):
    return parse_run(make_train_parser(family), SETTINGS_CLASSES[family], words)[0]


@pytest.mark.parametrize(
    ("family", "names", "canonical"),
    [
        (
            "atari",
            ["Qbert", "qbert", "ALE/Qbert-v5", "QbertNoFrameskip-v4", "QbertDeterministic-v4"],
            "QbertNoFrameskip-v4",
        ),
        ("atari", ["space_invaders", "SpaceInvaders"], "SpaceInvadersNoFrameskip-v4"),
        ("minatar", ["breakout", "Breakout", "MinAtar/Breakout-v1"], "breakout"),
        ("minatar", ["SpaceInvaders", "medqn/MinAtar-SpaceInvaders-v0"], "space_invaders"),
        ("lowdim", ["MountainCar", "mountaincar-v0"], "MountainCar-v0"),
        ("lowdim", ["catcher", "medqn/Catcher-v0"], "Catcher"),
    ],
)
def test_all_spellings_of_a_task_are_one_run(family, names, canonical):
    settings = [settings_of(family, "--task", name) for name in names]
    assert {each.task for each in settings} == {canonical}
    assert len({json.dumps(each.identity) for each in settings}) == 1
    assert settings[0].run_names[0] == canonical


def test_a_game_of_the_paper_has_its_settings_under_any_name():
    assert settings_of("atari", "--task", "qbert").step_per_collect == 20


def test_every_family_has_the_flags_task_and_steps():
    for family in SETTINGS_CLASSES:
        parser = make_train_parser(family)
        given = vars(parser.parse_args(["--task", "x", "--steps", "3e6"]))
        assert given == {"task": "x", "steps": 3_000_000}
    assert settings_of("minatar", "--game", "seaquest").task == "seaquest"


@pytest.mark.parametrize(
    ("flags", "epochs", "length"),
    [
        ("--steps 1500000", 15, 100_000),
        ("--steps 2000", 1, 2_000),
        ("--steps 6000 --step-per-epoch 2000", 3, 2_000),
    ],
)
def test_steps_of_atari_are_epochs(flags, epochs, length):
    settings = settings_of("atari", *flags.split())
    assert (settings.epoch, settings.step_per_epoch) == (epochs, length)
    assert settings.total_env_steps == epochs * length
    same = settings_of("atari", "--epoch", str(epochs), "--step-per-epoch", str(length))
    assert settings.identity == same.identity


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("--steps 250000", "steps=250000 has no whole number of epochs of 100000; use 200000 or"),
        ("--steps 200000 --epoch 2", "steps=200000 is the run's length, as is --epoch"),
    ],
)
def test_steps_that_are_no_epochs_are_refused(flags, text):
    with pytest.raises(ConfigError, match=text):
        settings_of("atari", *flags.split())


def test_an_algorithm_has_one_name_in_flag_folder_and_settings():
    for name in ("medqn-r", "medqn"):  # the second is an earlier name
        settings = settings_of("atari", "--algo", name)
        assert settings.algo == "medqn-r"
        assert settings.run_names[1] == "medqn-r"
    assert settings_of("atari", "--sampling", "mixed").run_names[1] == "medqn-r-mixed"
    assert settings_of("atari", "--algo", "dqn").run_names[1] == "dqn"


def test_a_run_with_the_earlier_name_is_found_and_resumed(tmp_path):
    settings = settings_of("atari", "--task", "Qbert")
    folder = tmp_path.joinpath(settings.task, "medqn-real", "0", "20260101-120000")
    folder.mkdir(parents=True)
    config = {"family": "atari", "task": settings.task, "algo": "medqn", "seed": 0}
    (folder / "config.json").write_text(json.dumps({**config, "settings": settings.written()}))
    assert list(find_runs(tmp_path.joinpath(*settings.run_names), settings.identity)) == [folder]
    assert read_config(folder).difference(settings.identity) is None
    in_checkpoint = {**settings.identity, "algo": "medqn"}
    assert difference(in_checkpoint, settings.identity) is None
