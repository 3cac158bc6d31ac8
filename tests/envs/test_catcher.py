"""The rules of Catcher."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ple_play import LEFT, RIGHT, RULES, WAIT, around, both_rules, feed, new_catcher, overlap

from medqn_tianshou.envs import catcher
from medqn_tianshou.envs.catcher import Catcher


def test_catcher_constants_are_those_of_the_original_in_every_bit() -> None:
    assert catcher.PUSH == 1.344
    assert catcher.FALL == 2.026666666666667


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "trunc",
            [
                (25, 0, 44, -16),
                (23, -1.2096, 44, -13),
                (23, 0.12096000000000007, 44, -10),
                (23, 0.10886400000000006, 44, -7),
            ],
        ),
        (
            "round",
            [
                (26, 0, 44, -16),
                (25, -1.2096, 44, -14),
                (25, 0.12096000000000007, 44, -12),
                (25, 0.10886400000000006, 44, -10),
            ],
        ),
    ],
)
def test_catcher_plays_the_worked_example(
    rule: str, expected: list[tuple[float, float, float, float]]
) -> None:
    env = new_catcher(rule)
    states = [env.raw_state()]
    for action in (LEFT, RIGHT, WAIT):
        observation, *_ = env.step(action)
        states.append(env.raw_state())
        px, vel, fx, fy = env.raw_state()
        normalised = [(px - 26) / 26, vel / 8, (fx - 26) / 26, (fy - 20) / 45]
        np.testing.assert_array_equal(observation, np.array(normalised, np.float32))
    assert states == expected


@both_rules
@pytest.mark.parametrize("height", range(4, 32, 4))
def test_fruit_falls_three_pixels_above_the_screen_only_under_trunc(rule: str, height: int) -> None:
    env = new_catcher(rule, fruit=(52, height))  # out of the paddle's reach
    seen = [env.fruit_y]
    while env.fruit_y < 64:
        env.step(WAIT)
        seen.append(env.fruit_y)
    for before, after in itertools.pairwise(seen):
        assert after - before == (3 if rule == "trunc" and before <= -3 else 2)
    assert seen[-1] <= (65 if rule == "trunc" else 64)
    if rule == "trunc" and height == 16:
        assert seen[:8] == [-16, -13, -10, -7, -4, -1, 1, 3]


def test_one_left_press_drifts_to_the_wall_under_trunc_but_stops_under_round() -> None:
    envs = {rule: new_catcher(rule) for rule in RULES}
    for env in envs.values():
        env.step(LEFT)
        for _ in range(60):
            env.step(WAIT)
    assert envs["trunc"].paddle_x == 0
    assert envs["trunc"].velocity == 0.0
    assert envs["round"].paddle_x > 15


@pytest.mark.parametrize(("rule", "moved"), [("trunc", 0), ("round", 1)])
def test_a_velocity_between_a_half_and_one_moves_the_paddle_only_under_round(
    rule: str, moved: int
) -> None:
    env = new_catcher(rule)
    start, env.velocity = env.paddle_x, 0.6  # 0.54 after friction
    env.step(WAIT)
    assert env.paddle_x == start + moved
    assert env.velocity == 0.6 * 0.9


@both_rules
def test_walls_zero_the_velocity(rule: str) -> None:
    env = new_catcher(rule)
    for action, wall in ((RIGHT, 51), (LEFT, 0)):
        env.lives = 3
        for _ in range(40):
            env.step(action)
        assert (env.paddle_x, env.velocity) == (wall, 0.0)


@both_rules
@pytest.mark.parametrize(("start", "velocity", "wall"), [(1, -1.0, 0), (50, 1.0, 51)])
def test_reaching_a_wall_exactly_zeroes_the_velocity(
    rule: str, start: int, velocity: float, wall: int
) -> None:
    env = new_catcher(rule)
    env.paddle_x, env.velocity = start, velocity / 0.9
    assert env.velocity * 0.9 == velocity
    env.step(WAIT)
    assert (env.paddle_x, env.velocity) == (wall, 0.0)


def test_rounding_onto_the_right_wall_keeps_the_velocity_for_that_tick() -> None:
    env = new_catcher("round")
    env.paddle_x, env.velocity = 50, 1.0
    env.step(WAIT)  # to 50.9: not yet at the wall, but nearest to it
    assert (env.paddle_x, env.velocity) == (51, 0.9)
    env.step(WAIT)
    assert (env.paddle_x, env.velocity) == (51, 0.0)


def test_a_catch_is_an_overlap_of_the_two_rectangles() -> None:
    env = new_catcher("trunc")
    for fx, fy in itertools.product(range(8, 53), range(50, 64)):
        env.paddle_x, env.velocity, env.fruit_x, env.fruit_y = 30, 0.0, fx, fy
        caught = env.step(WAIT)[1] == 1.0
        assert caught == overlap(around(30, 58, 13, 3), around(fx, fy, 4, 4)), (fx, fy)
        assert caught == (env.fruit_y < 0)


@both_rules
def test_catch_and_miss_are_rewarded_one_tick_after_they_are_seen(rule: str) -> None:
    env = new_catcher(rule)
    env.paddle_x, env.fruit_x, env.fruit_y = 30, 30, 54
    assert env.step(WAIT)[1] == 0.0
    assert env.fruit_y == 56
    assert env.step(WAIT)[1] == 1.0
    assert env.lives == 3

    env.fruit_y = 62
    assert env.step(WAIT)[1] == 0.0
    assert env.fruit_y == 64
    assert env.step(WAIT)[1] == -1.0
    assert env.lives == 2


def test_the_last_miss_costs_six_and_still_places_a_fruit() -> None:
    env = new_catcher("trunc")
    env.lives, env.fruit_y = 1, 64
    feed(env, [("choice", 8, 56, 4, 12), ("choice", 4, 32, 4, 20)])
    observation, reward, terminated, truncated, _ = env.step(WAIT)
    assert (reward, terminated, truncated) == (-6.0, True, False)
    assert env.raw_state() == (25, 0.0, 12, -17)  # the fresh fruit has fallen once
    assert observation in env.observation_space


@given(st.sampled_from(RULES), st.integers(0, 100), st.lists(st.integers(0, 2), max_size=300))
@settings(max_examples=30, deadline=None)
def test_catcher_stays_in_its_ranges(rule: str, seed: int, actions: list[int]) -> None:
    env = Catcher(rect_rule=rule)
    env.reset(seed=seed)
    for action in actions:
        env.step(action)
        assert 0 <= env.paddle_x <= 51
        assert abs(env.velocity) < 12.096
        assert env.fruit_x in range(8, 56, 4)
        assert -28 <= env.fruit_y <= (65 if rule == "trunc" else 64)


def test_catcher_paints_from_the_centres() -> None:
    env = Catcher(render_mode="rgb_array")
    env.reset(seed=0)
    env.paddle_x, env.fruit_x, env.fruit_y = 51, 20, -2
    expected = np.zeros((64, 64, 3), np.uint8)
    expected[58:61, 51:64] = 255
    expected[0:2, 20:24] = (255, 120, 120)
    np.testing.assert_array_equal(env.render(), expected)
    env.fruit_y = -4  # wholly above the screen
    expected[0:2] = 0
    np.testing.assert_array_equal(env.render(), expected)
