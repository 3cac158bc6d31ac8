"""MinAtar's games as registered environments: names, rendering, errors."""

import re
import runpy
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from minatar_play import CHANNELS, NOOP, UP, all_games, fingerprint, play, random_actions

from medqn_tianshou.envs import minatar
from medqn_tianshou.envs.minatar import (
    MINATAR_GAMES,
    MinAtarEnv,
    SeaquestOxygen,
)
from medqn_tianshou.envs.registration import minatar_task, register_envs
from medqn_tianshou.files.extras import install_command


@all_games
def test_registered_games_pass_gymnasiums_checker(game: str) -> None:
    register_envs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()  # again: no warning that it overrides
        env = gym.make(minatar_task(game), render_mode="rgb_array")
        env.reset(seed=0)
        env.step(env.action_space.sample())
        check_env(env.unwrapped)
    assert isinstance(env.unwrapped, MinAtarEnv)
    assert env.unwrapped.game == game
    assert env.spec is not None
    assert env.spec.max_episode_steps == (10_000 if game == "seaquest" else None)


def test_tasks_have_the_documented_names() -> None:
    assert [minatar_task(game) for game in MINATAR_GAMES] == [
        "medqn/MinAtar-Asterix-v0",
        "medqn/MinAtar-Breakout-v0",
        "medqn/MinAtar-Freeway-v0",
        "medqn/MinAtar-Seaquest-v0",
        "medqn/MinAtar-SpaceInvaders-v0",
    ]


def test_seaquest_at_the_surface_lasts_until_it_is_cut() -> None:
    register_envs()
    env = gym.make("medqn/MinAtar-Seaquest-v0")
    env.reset(seed=0)
    for step in range(1, 10_001):
        _, _, terminated, truncated, _ = env.step(NOOP)
        assert (terminated, truncated) == (False, step == 10_000)


@pytest.mark.parametrize(
    ("option", "endings"),
    [
        ("fixed", [(0, 0, False), (-1, 0, True)]),
        ("flash", [(0, 0, False), (-1, 9, False), (-2, 9, True)]),
    ],
)
def test_without_oxygen_seaquest_ends_as_the_chosen_minatar(
    option: SeaquestOxygen, endings: list[tuple[int, int, bool]]
) -> None:
    """As recorded from MinAtar 1.0.15 and 1.0.10: oxygen, cells of its bar, end."""
    env = MinAtarEnv(game="seaquest", seaquest_oxygen=option)
    env.reset(seed=0)
    game = env._game.env
    game.oxygen, game.sub_y = 1, 5
    seen = []
    for _ in endings:
        observation, _, terminated, _, _ = env.step(NOOP)
        bar = observation[game.channels["oxygen_guage"]]
        assert not bar[:-1].any()
        seen.append((game.oxygen, bar.sum(), terminated))
    assert seen == endings


def test_seaquest_can_surface_in_the_step_that_only_the_flash_has() -> None:
    env = MinAtarEnv(game="seaquest", seaquest_oxygen="flash", sticky_action_prob=0.0)
    env.reset(seed=0)
    game = env._game.env
    game.oxygen, game.sub_y, game.surface, game.diver_count = 0, 1, False, 1
    _, _, terminated, _, _ = env.step(UP)
    assert (game.oxygen, game.diver_count, terminated) == (200, 0, False)


def test_options_pass_through_make() -> None:
    register_envs()
    env = gym.make("medqn/MinAtar-Breakout-v0", full_action_set=False, sticky_action_prob=0.0)
    assert env.action_space.n == 3
    assert env.unwrapped._game.sticky_action_prob == 0.0


@all_games
def test_a_finished_game_stands_still(game: str) -> None:
    env = MinAtarEnv(game=game)
    frames = play(env, random_actions(env, 3000), seed=0)
    last = next(observation for observation, _, terminated in frames if terminated)
    for action in range(6):
        observation, reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation, last)
        assert (reward, terminated, truncated) == (0.0, True, False)


def test_breakout_is_painted_cell_by_cell() -> None:
    env = MinAtarEnv(game="breakout", render_mode="rgb_array")
    env.reset(seed=0)
    game = env._game.env
    game.ball_x, game.ball_y, game.last_x, game.last_y = 2, 6, 1, 5
    paddle, ball, trail, brick = minatar.CHANNEL_COLOURS[:4]
    expected = np.zeros((160, 160, 3), np.uint8)
    expected[16:64] = brick
    expected[96:112, 32:48] = ball
    expected[80:96, 16:32] = trail
    expected[144:160, 64:80] = paddle
    frame = env.render()
    assert frame is not None
    assert frame.dtype == np.uint8
    np.testing.assert_array_equal(frame, expected)


def test_later_channels_cover_earlier_ones_but_never_the_player() -> None:
    env = MinAtarEnv(game="breakout", render_mode="rgb_array")
    env.reset(seed=0)
    game = env._game.env
    game.ball_x, game.ball_y, game.last_x, game.last_y = 7, 7, 7, 7
    frame = env.render()
    assert frame is not None
    assert tuple(frame[7 * 16, 7 * 16]) == minatar.CHANNEL_COLOURS[2]
    game.ball_x, game.ball_y = game.pos, 9
    frame = env.render()
    assert frame is not None
    assert tuple(frame[9 * 16, game.pos * 16]) == minatar.CHANNEL_COLOURS[0]


@all_games
def test_every_channel_has_a_colour_of_its_own(game: str) -> None:
    used = minatar.CHANNEL_COLOURS[: CHANNELS[game]]
    assert len({minatar.BACKGROUND, *used}) == CHANNELS[game] + 1


def test_rendering_does_not_change_the_play() -> None:
    silent, painted = (
        MinAtarEnv(game="asterix"),
        MinAtarEnv(game="asterix", render_mode="rgb_array"),
    )
    actions = random_actions(silent, 200)
    expected = fingerprint(play(silent, actions, seed=1))
    assert silent.render() is None
    frames, pictures = [], set()
    for frame in play(painted, actions, seed=1):
        frames.append(frame)
        picture = painted.render()
        assert picture is not None
        pictures.add(picture.tobytes())
    assert fingerprint(frames) == expected
    assert len(pictures) > 20


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("brekout", "did you mean 'breakout'"),
        ("Breakout", "did you mean 'breakout'"),
        ("SpaceInvaders", "did you mean 'space_invaders'"),
        ("medqn/MinAtar-Seaquest-v0", "did you mean 'seaquest'"),
        ("qbert", "use one of .*'asterix', 'breakout', 'freeway', 'seaquest', 'space_invaders'"),
        ("", "use one of"),
    ],
)
def test_an_unknown_game_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"game={name!r}.*{hint}"):
        MinAtarEnv(game=name)
    with pytest.raises(ValueError, match=f"game={name!r}.*{hint}"):
        minatar_task(name)


def test_errors_name_the_argument_the_value_and_the_remedy() -> None:
    for probability in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=rf"sticky_action_prob={probability}.*from 0 to 1"):
            MinAtarEnv(game="breakout", sticky_action_prob=probability)
    with pytest.raises(ValueError, match=r"seaquest_oxygen='full'.*'flash'"):
        MinAtarEnv(game="seaquest", seaquest_oxygen="full")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"render_mode='human'.*'rgb_array'"):
        MinAtarEnv(game="breakout", render_mode="human")
    env = MinAtarEnv(game="breakout", full_action_set=False, render_mode="rgb_array")
    for call in (lambda: env.step(0), env.render):
        with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\)"):
            call()
    env.reset(seed=0)
    for action in (-1, 3, 0.5, "left"):
        with pytest.raises(
            ValueError, match=rf"action={action!r} .*breakout.*0 \(no-op\), 1 \(left\), 2 \(right\)"
        ):
            env.step(action)


def test_without_minatar_the_module_imports_and_building_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "minatar", None)  # as if it were not installed
    module = runpy.run_path(str(minatar.__file__))
    with pytest.raises(ImportError, match=re.escape(install_command("minatar"))):
        module["MinAtarEnv"](game="breakout")
    with pytest.raises(ValueError, match="did you mean 'breakout'"):
        module["MinAtarEnv"](game="brekout")
