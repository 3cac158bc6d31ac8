"""What Catcher and Pixelcopter share: whole pixels, seeds, registration, errors."""

import math
import pickle
import warnings
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from ple_play import GLIDE, both_games, both_rules, feed

from medqn_tianshou.envs.catcher import Catcher
from medqn_tianshou.envs.ple import PLEGame, round_half_away
from medqn_tianshou.envs.registration import register_envs


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (25.5, 26),
        (25.49, 25),
        (-0.5, -1),
        (-1.97, -2),
        (2.5, 3),
        (0.49999999999999994, 0),
        (-0.49999999999999994, 0),
        (7, 7),
    ],
)
def test_rounding_takes_ties_away_from_zero(value: float, expected: int) -> None:
    assert round_half_away(value) == expected


@given(st.floats(-1e15, 1e15))
def test_rounding_agrees_with_exact_fractions(value: float) -> None:
    exact = Fraction(value)
    expected = math.floor(abs(exact) + Fraction(1, 2)) * (-1 if value < 0 else 1)
    assert round_half_away(value) == expected


@both_games
def test_a_finished_game_stands_still(game: type[PLEGame]) -> None:
    env = game()
    env.reset(seed=3)
    terminated = False
    while not terminated:
        last, _, terminated, *_ = env.step(0)
    feed(env, [])
    for action in (0, 1):
        observation, reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_array_equal(observation, last)
        assert observation is not last
        assert (reward, terminated, truncated) == (0.0, True, False)


@both_games
def test_a_seed_decides_the_game_and_no_seed_goes_on(game: type[PLEGame]) -> None:
    def play(env: PLEGame, seed: int | None) -> list[tuple[float, ...]]:
        env.reset(seed=seed)
        states = [env.raw_state()]
        for step in range(150):
            env.lives = 5
            env.step(step % 3 % len(env.action_names))
            states.append(env.raw_state())
        return states

    env = game()
    first = play(env, 7)
    assert play(game(), 7) == first
    assert play(env, None) != first
    assert play(env, 7) == first
    assert play(env, 8) != first


@both_games
def test_a_pickled_game_continues_alike(game: type[PLEGame]) -> None:
    env = game(rect_rule="round")
    env.reset(seed=1)
    env.step(1)
    twin = pickle.loads(pickle.dumps(env))  # noqa: S301 (our own bytes)
    for _ in range(100):
        np.testing.assert_array_equal(env.step(1)[0], twin.step(1)[0])


@pytest.mark.parametrize(("name", "limit"), [("Catcher", 2000), ("Pixelcopter", 500)])
@both_rules
def test_registered_games_pass_gymnasiums_checker(name: str, limit: int, rule: str) -> None:
    register_envs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_envs()  # again: no warning that it overrides
        env = gym.make(f"medqn/{name}-v0", rect_rule=rule, render_mode="rgb_array")
        env.reset(seed=0)
        env.step(env.action_space.sample())
    assert env.spec is not None
    assert env.spec.max_episode_steps == limit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The original's observation space is unbounded; the checker frowns on that alone.
        warnings.filterwarnings("ignore", message=".*infinity. This is probably too")
        check_env(env.unwrapped)


def test_the_episode_limit_truncates() -> None:
    register_envs()
    env = gym.make("medqn/Pixelcopter-v0")
    env.reset(seed=0)
    for step in range(1, 501):
        env.unwrapped.y, env.unwrapped.lives = 24.0, 1000
        _, _, terminated, truncated, _ = env.step(GLIDE)
        assert (terminated, truncated) == (False, step == 500)


@both_games
def test_errors_name_the_argument_the_value_and_the_remedy(game: type[PLEGame]) -> None:
    with pytest.raises(ValueError, match=r"rect_rule='floor'.*'trunc', 'round'"):
        game(rect_rule="floor")
    with pytest.raises(ValueError, match=r"render_mode='human'.*'rgb_array'"):
        game(render_mode="human")
    env = game(render_mode="rgb_array")
    for call in (lambda: env.step(0), env.render):
        with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\)"):
            call()
    env.reset(seed=0)
    for action in (-1, len(env.action_names), 0.5, "up"):
        with pytest.raises(ValueError, match=rf"action={action!r}.*\(no-op\)"):
            env.step(action)
    with pytest.raises(ValueError, match=r"kind='normal'.*'uniform'"):
        env.draw("normal", 0, 1)
    with pytest.raises(ValueError, match=r"c=None.*stride"):
        env.draw("choice", 0, 8)


def test_draws_cover_their_ranges_and_nothing_else() -> None:
    env = Catcher()
    env.reset(seed=0)
    assert {env.draw("choice", 8, 56, 4) for _ in range(500)} == set(range(8, 56, 4))
    assert {env.draw("randint", 12, 36) for _ in range(1000)} == set(range(12, 36))
    uniform = [env.draw("uniform", -0.01, 0.01) for _ in range(1000)]
    assert -0.01 <= min(uniform) < -0.0095
    assert 0.0095 < max(uniform) < 0.01
