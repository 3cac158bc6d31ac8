"""Names of Atari tasks, and wrong arguments."""

import importlib
import sys
from typing import Any

import pytest

from medqn_tianshou.envs.atari import atari_tasks, make_atari_envs, nearest_task

envpool = pytest.importorskip("envpool")
roms = pytest.importorskip("ale_py.roms")


def test_the_tasks_are_the_games_of_both_backends() -> None:
    def names(games: list[str], *, ending: str) -> set[str]:
        return {name.removesuffix(ending).lower() for name in games if name.endswith(ending)}

    of_ale = {rom.replace("_", "") for rom in roms.get_all_rom_ids()}
    of_envpool = names(envpool.list_all_envs(), ending="-v5")
    assert names(list(atari_tasks()), ending="NoFrameskip-v4") == of_ale & of_envpool
    assert len(atari_tasks()) == len(set(atari_tasks())) > 100


@pytest.mark.parametrize(
    ("task", "nearest"),
    [
        ("QbertNoFrameskip-v4", "QbertNoFrameskip-v4"),
        ("Qbert", "QbertNoFrameskip-v4"),
        ("qbert", "QbertNoFrameskip-v4"),
        ("QbertNoFrameskip-v5", "QbertNoFrameskip-v4"),
        ("ALE/Qbert-v5", "QbertNoFrameskip-v4"),
        ("Qbrt", "QbertNoFrameskip-v4"),
        ("QbrtNoFrameskip-v4", "QbertNoFrameskip-v4"),
        ("name_this_game", "NameThisGameNoFrameskip-v4"),
        ("BattlezoneDeterministic-v4", "BattleZoneNoFrameskip-v4"),
        ("Pacman", "PacmanNoFrameskip-v4"),
        ("CartPole-v1", None),
        ("", None),
    ],
)
def test_the_nearest_task_is_the_one_meant(task: str, nearest: str | None) -> None:
    assert nearest_task(task) == nearest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "QbrtNoFrameskip-v4"}, "QbrtNoFrameskip-v4.*did you mean 'QbertNoFrameskip-v4'"),
        ({"task": "CartPole-v1"}, "CartPole-v1.*atari_tasks"),
        ({"backend": "gym"}, "gym.*envpool.*ale"),
        ({"num_envs": 0}, "num_envs=0"),
        ({"frames_stack": 0}, "frames_stack=0"),
        ({"noop_max": 0}, "noop_max=0"),
        ({"render_mode": "ascii"}, "render_mode"),
        ({"render_mode": "ascii", "backend": "ale"}, "render_mode='ascii'"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], message: str) -> None:
    right = {"task": "QbertNoFrameskip-v4", "num_envs": 1, "seed": 0, "training": True}
    with pytest.raises(ValueError, match=message):
        make_atari_envs(**(right | wrong))


def test_naming_tasks_loads_no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("ale_py", "envpool"):
        monkeypatch.setitem(sys.modules, package, None)  # an import would raise
    monkeypatch.delitem(sys.modules, "medqn_tianshou.envs.atari")
    fresh = importlib.import_module("medqn_tianshou.envs.atari")
    assert fresh.nearest_task("qbert") == "QbertNoFrameskip-v4"
