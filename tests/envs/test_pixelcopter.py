"""The rules of Pixelcopter."""

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ple_play import (
    GLIDE,
    UP,
    around,
    both_rules,
    feed,
    hover,
    new_copter,
    overlap,
)

from medqn_tianshou.envs import pixelcopter
from medqn_tianshou.envs.pixelcopter import Block, Pixelcopter
from medqn_tianshou.envs.ple import round_half_away


def test_pixelcopter_constants_are_those_of_the_original_in_every_bit() -> None:
    assert pixelcopter.SCROLL == 0.6400000000000001
    assert pixelcopter.CLIMB == -0.5600000000000002
    assert pixelcopter.FALL == 0.05760000000000001
    assert pixelcopter.PLAYER_HEIGHT == 2.4000000000000004


@both_rules
def test_pixelcopter_plays_the_worked_example(rule: str) -> None:
    env = new_copter(rule)
    env.terrain_y = [29] * 48
    states = [env.raw_state()]
    for action in (UP, GLIDE, UP):
        env.step(action)
        states.append(env.raw_state())
    y, momentum, ceiling, floor, distance, block_y, block_bottom = zip(*states, strict=True)
    assert y == (24.0, 23.4456, 22.953768, 21.91245432)
    assert momentum == (0, -0.5544000000000001, -0.4918320000000001, -1.0413136800000002)
    assert ceiling == tuple(value - 17.0 for value in y)
    assert floor == tuple(41.0 - value for value in y)
    assert distance == pytest.approx((48, 47.36, 46.72, 46.08))
    assert set(block_y) == {13}
    assert set(block_bottom) == {22}


def test_positions_come_from_repeated_subtraction() -> None:
    env = new_copter("trunc", block=(48, 13))
    piece = env.terrain_x.index(50)
    for _ in range(25):
        passed = hover(env)
    piece -= 48 - len(env.terrain_x)  # pieces that left meanwhile
    assert env.terrain_x[piece] == 33.999999999999986  # 50 - 25 * 0.64 would be 34
    for _ in range(25):
        assert len(env.blocks) == 1
        passed = hover(env)
    assert passed >= 1.0
    assert env.blocks[0].x == 15.999999999999972
    assert env.blocks[1].x >= 48


@both_rules
def test_terrain_rewards_and_new_batches_come_at_fixed_ticks(rule: str) -> None:
    env = new_copter(rule)
    left, batches = [], []
    for tick in range(1, 820):
        before, newest = len(env.terrain_x), env.blocks[-1]
        reward = hover(env)
        passed = env.blocks[-1].x > newest.x
        if reward - passed:
            left.append(tick)
        if len(env.terrain_x) > before:
            batches.append(tick)
    assert left[:5] == [10, 16, 22, 29, 35]
    assert batches == [222, 519, 816]


@both_rules
@given(seed=st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_pixelcopter_keeps_the_order_its_rules_rely_on(rule: str, seed: int) -> None:
    env = Pixelcopter(rect_rule=rule)
    env.reset(seed=seed)
    for _ in range(600):
        hover(env)
        assert all(a < b for a, b in itertools.pairwise(env.terrain_x))
        assert len(env.terrain_x) == len(env.terrain_y)
        assert set(env.terrain_y) <= set(range(18, 30))
        ahead = [block for block in env.blocks if block.x - 16 > 0]
        assert ahead == env.blocks[-1:]
        assert len(env.blocks) in (1, 2)
        touching = [
            y
            for x, y in zip(env.terrain_x, env.terrain_y, strict=True)
            if overlap(around(16, 24, 2, 2), around(env._to_pixel(x), y, 4, 72))
        ]
        assert len(touching) in (1, 2)
        assert env.raw_state()[2] == env.y - (touching[0] - 12.0)


@both_rules
def test_a_block_hit_is_an_overlap_of_the_two_rectangles(rule: str) -> None:
    to_pixel = {"trunc": int, "round": round_half_away}[rule]
    start = new_copter(rule)
    start.terrain_y = [24] * 48
    for x, y in itertools.product(np.arange(12, 22, 0.25).tolist(), np.arange(15, 34, 0.25)):
        env = copy.copy(start)  # it shares the terrain, which a first tick leaves in place
        env.blocks = [Block(x, 24), Block(60.0, 24)]
        env.y = float(y)
        env.step(GLIDE)
        player = around(16, to_pixel(env.y), 2, 2)
        block = around(to_pixel(env.blocks[0].x), 24, 4, 9)
        assert env.lives == 1 - overlap(player, block), (x, y)


@pytest.mark.parametrize(
    ("y", "lives_lost"),
    [
        (14.4 + 1e-9, 0),  # with no piece of the ceiling or floor nearer than these
        (14.4, 1),
        (36.0 - 1e-9, 0),
        (36.0, 1),
        (42.1, 2),
        (5.9, 2),
    ],
)
def test_ceiling_floor_and_screen_edges_each_cost_a_life(y: float, lives_lost: int) -> None:
    env = new_copter("trunc")
    env.terrain_x = [16.0 + pixelcopter.SCROLL + 4 * i for i in range(48)]  # one piece touches
    env.terrain_y = [24] * 48
    env.y, env.momentum = y, -pixelcopter.FALL  # so that the tick does not move the player
    _, reward, terminated, *_ = env.step(GLIDE)
    assert env.y == y
    assert env.lives == 1 - lives_lost
    assert (reward, terminated) == ((-5.0, True) if lives_lost else (0.0, False))


def test_the_fatal_tick_still_rewards_and_draws() -> None:
    env = new_copter("trunc")
    env.blocks = [Block(16 + pixelcopter.SCROLL, 24)]  # to 16 exactly, which counts as passed
    env.terrain_x[0] = -4 + pixelcopter.SCROLL  # likewise, as gone
    feed(env, [("randint", 48, 72, None, 50), ("randint", 12, 36, None, 20)])
    _, reward, terminated, *_ = env.step(GLIDE)
    assert (reward, terminated) == (-3.0, True)
    assert env.blocks == [(16.0, 24), (50, 20)]
    assert env.terrain_x[0] == 6 - pixelcopter.SCROLL


def test_pixelcopter_paints_its_rectangles() -> None:
    env = Pixelcopter(render_mode="rgb_array")
    env.reset(seed=0)
    env.terrain_x, env.terrain_y = [2.9, 6.9], [20, 25]
    env.blocks, env.y = [Block(40.9, 30)], 24.9
    green = (120, 240, 80)
    expected = np.zeros((48, 48, 3), np.uint8)
    expected[:8, 0:4] = expected[34:, 0:4] = green
    expected[:13, 4:8] = expected[39:, 4:8] = green
    expected[26:35, 38:42] = green
    expected[23:25, 15:17] = 255
    np.testing.assert_array_equal(env.render(), expected)
