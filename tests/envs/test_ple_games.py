"""Catcher and Pixelcopter against recordings of the original games, and against their rules."""

import copy
import itertools
import math
import pickle
import warnings
from collections import defaultdict, deque
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from medqn_tianshou.envs import catcher, pixelcopter
from medqn_tianshou.envs.catcher import Catcher
from medqn_tianshou.envs.pixelcopter import Block, Pixelcopter
from medqn_tianshou.envs.ple import PLEGame, register_ple_games, round_half_away

GAMES: dict[str, type[PLEGame]] = {"catcher": Catcher, "pixelcopter": Pixelcopter}
RULES = ("trunc", "round")
LEFT, RIGHT, WAIT = range(3)
UP, GLIDE = range(2)
DATA = Path(__file__).parent / "data"
FULL_DATA = Path(__file__).parents[3] / "shared" / "ple"  # present on the machine we develop on

both_rules = pytest.mark.parametrize("rule", RULES)
both_games = pytest.mark.parametrize("game", list(GAMES.values()))


def feed(env: PLEGame, draws: list[tuple[Any, ...]]) -> deque[tuple[Any, ...]]:
    """Make the game draw these (kind, a, b, c, value), and refuse any other request."""
    queue = deque(draws)

    def draw(kind: str, a: float, b: float, c: float | None = None) -> float:
        *request, value = queue.popleft()
        assert request == [kind, a, b, c]
        return float(value)

    env.draw = draw  # type: ignore[method-assign]
    return queue


def new_catcher(rule: str, *, fruit: tuple[int, int] = (44, 16)) -> Catcher:
    """Start a game whose first fruit is given; later ones are random."""
    env = Catcher(rect_rule=rule)
    feed(env, [("choice", 8, 56, 4, fruit[0]), ("choice", 4, 32, 4, fruit[1])])
    env.reset(seed=0)
    del env.draw
    return env


def new_copter(rule: str, *, block: tuple[int, int] = (64, 13)) -> Pixelcopter:
    """Start a game whose first block is given; the rest is random."""
    env = Pixelcopter(rect_rule=rule)
    env.reset(seed=0)
    env.blocks = [Block(*block)]
    return env


def hover(env: Pixelcopter) -> float:
    """Play a tick with the player held in mid-screen and given all the lives it needs."""
    env.y, env.momentum, env.lives = 24.0, 0.0, 1000
    return env.step(GLIDE)[1]


# --- Against the recordings -----------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("folder", [DATA, FULL_DATA], ids=["part", "full"])
def test_recorded_play_is_reproduced_to_the_last_bit(game: str, folder: Path) -> None:
    path = folder / f"{game}_golden.npz"
    if folder == FULL_DATA and not path.is_file():
        pytest.skip("the full recordings are not on this machine")
    with np.load(path) as file:
        gold = dict(file)

    draws = defaultdict(list)
    columns = ("episode", "step", "kind", "a", "b", "c", "value")
    rows = zip(*(gold[f"draw_{name}"].tolist() for name in columns), strict=True)
    for episode, step, kind, a, b, c, value in rows:
        name = ("choice", "randint", "uniform")[kind]
        draws[episode, step].append((name, a, b, c if name == "choice" else None, value))

    played: dict[str, list[Any]] = defaultdict(list)
    envs = [GAMES[game](rect_rule=rule) for rule in RULES]
    for episode, rule in enumerate(gold["ep_center_rule"]):
        env = envs[rule]
        left = feed(env, draws[episode, -1])
        observation, _ = env.reset()
        played["ep_gym_obs_reset"].append(observation)
        played["ep_raw_obs_reset"].append(env.raw_state())
        assert not left
        score = 0.0
        actions = gold["action"][gold["episode"] == episode]
        for step, action in enumerate(actions):
            left = feed(env, draws[episode, step])
            observation, reward, terminated, truncated, info = env.step(action)
            assert not left, f"a draw is missing in episode {episode}, step {step}"
            assert not truncated
            assert info == {}
            score += reward
            played["gym_obs_after"].append(observation)
            played["raw_obs_after"].append(env.raw_state())
            played["reward"].append(reward)
            played["terminated"].append(terminated)
            played["lives_after"].append(env.lives)
            played["score_after"].append(score)
            if isinstance(env, Pixelcopter):
                played["n_blocks_after"].append(len(env.blocks))
                played["n_terrain_after"].append(len(env.terrain_x))
        played["ep_return"].append(score)

    for name, values in played.items():
        expected = gold[name]
        got = np.array(values)
        if name not in ("lives_after", "n_blocks_after", "n_terrain_after"):
            assert got.dtype == expected.dtype, name
        got = got.astype(expected.dtype)
        differs = np.argwhere(np.atleast_2d((got != expected).T).any(axis=0))
        assert got.tobytes() == expected.tobytes(), f"{name} differs at rows {differs[:5].ravel()}"


@pytest.mark.parametrize(
    ("game", "rewards", "longest"),
    # Pixelcopter's second batch of terrain comes at tick 222 and reaches the player 50 ticks later.
    [("catcher", {-6, -1, 0, 1}, 380), ("pixelcopter", {-5, -4, 0, 1, 2}, 300)],
)
def test_the_shipped_recordings_cover_what_matters(
    game: str, rewards: set[float], longest: int
) -> None:
    with np.load(DATA / f"{game}_golden.npz") as gold:
        steps_by_rule = gold["ep_center_rule"][gold["episode"]]
        for rule in (0, 1):
            assert set(gold["reward"][steps_by_rule == rule]) == rewards
            in_rule = gold["ep_center_rule"] == rule
            assert set(gold["ep_terminated"][in_rule]) == {True, False}
            assert (gold["ep_seed"][in_rule] < 0).any()  # a reset that goes on with the stream
            assert (gold["ep_seed"][in_rule] >= 0).any()
            assert gold["ep_length"][in_rule].max() >= longest


# Means and standard errors of the original games, from episodes seeded otherwise than ours.
@pytest.mark.parametrize(
    ("game", "rule", "p", "episodes", "length", "score"),
    [
        (Catcher, "trunc", (1, 1, 1), 200, (154.15, 1.38), (-6.812, 0.041)),
        (Catcher, "round", (1, 1, 1), 200, (166.07, 1.59), (-6.741, 0.043)),
        (Pixelcopter, "trunc", (1, 1), 1000, (7.149, 0.064), (-4.812, 0.010)),
        (Pixelcopter, "round", (1, 1), 1000, (7.029, 0.058), (-4.828, 0.009)),
        (Pixelcopter, "trunc", (1, 9), 500, (32.60, 0.45), (-0.679, 0.076)),
        (Pixelcopter, "round", (1, 9), 500, (32.98, 0.47), (-0.626, 0.080)),
        (Pixelcopter, "trunc", (0, 1), 300, (21.04, 0.06), (-2.614, 0.022)),
    ],
)
def test_own_random_numbers_give_the_original_statistics(
    game: type[PLEGame],
    rule: str,
    p: tuple[int, ...],
    episodes: int,
    length: tuple[float, float],
    score: tuple[float, float],
) -> None:
    env = game(rect_rule=rule)
    env.reset(seed=1)
    rng = np.random.default_rng(2)
    played = []
    for _ in range(episodes):
        env.reset()
        rewards = []
        terminated = False
        for action in rng.choice(len(p), 2000, p=np.array(p) / sum(p)).tolist():
            _, reward, terminated, *_ = env.step(action)
            rewards.append(reward)
            if terminated:
                break
        assert terminated
        played.append((len(rewards), sum(rewards)))
    for values, (mean, error) in zip(np.array(played).T, (length, score), strict=True):
        own_error = values.std() / math.sqrt(episodes)
        assert abs(values.mean() - mean) < 4 * math.hypot(error, own_error)


# --- Whole pixels ---------------------------------------------------------------------------------


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


def overlap(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    """Whether two (left, top, width, height) overlap; touching edges do not."""
    return a[0] < b[0] + b[2] and a[0] + a[2] > b[0] and a[1] < b[1] + b[3] and a[1] + a[3] > b[1]


def around(x: int, y: int, width: int, height: int) -> tuple[int, int, int, int]:
    return x - width // 2, y - height // 2, width, height


# --- Catcher --------------------------------------------------------------------------------------


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


# --- Pixelcopter ----------------------------------------------------------------------------------


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


# --- As environments ------------------------------------------------------------------------------


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
    register_ple_games()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_ple_games()  # again: no warning that it overrides
        env = gym.make(f"medqn/{name}-v0", rect_rule=rule, render_mode="rgb_array")
        env.reset(seed=0)
        env.step(env.action_space.sample())
    assert env.spec is not None
    assert env.spec.max_episode_steps == limit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The original's observation space is unbounded; the checker frowns on that alone.
        warnings.filterwarnings("ignore", message=".*-infinity. This is probably too")
        check_env(env.unwrapped)


def test_the_episode_limit_truncates() -> None:
    register_ple_games()
    env = gym.make("medqn/Pixelcopter-v0")
    env.reset(seed=0)
    for step in range(1, 501):
        env.unwrapped.y, env.unwrapped.lives = 24.0, 1000
        _, _, terminated, truncated, _ = env.step(GLIDE)
        assert (terminated, truncated) == (False, step == 500)


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
