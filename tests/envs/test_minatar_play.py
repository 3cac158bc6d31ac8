"""MinAtar's games through our environment against the MinAtar package itself."""

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import seeding
from minatar import Environment
from minatar_play import (
    CHANNELS,
    FIRE,
    LEFT,
    NOOP,
    RIGHT,
    UP,
    USEFUL,
    all_games,
    fingerprint,
    play,
    play_package,
    random_actions,
)
from tianshou.data import Batch, ReplayBuffer
from tianshou.env import DummyVectorEnv

from medqn_tianshou.algorithm.samplers import UniformStateSampler
from medqn_tianshou.envs import minatar
from medqn_tianshou.envs.minatar import (
    MinAtarEnv,
)


@all_games
@pytest.mark.parametrize(
    ("full_action_set", "kwargs"),
    [
        (True, {}),
        (False, {}),
        (True, {"sticky_action_prob": 0.5, "difficulty_ramping": False}),
    ],
    ids=["full", "minimal", "options"],
)
def test_play_is_the_packages_step_by_step(
    game: str, full_action_set: bool, kwargs: dict[str, Any]
) -> None:
    env = MinAtarEnv(game=game, full_action_set=full_action_set, **kwargs)
    actions = random_actions(env, 5200 if game == "freeway" else 2000)
    useful = list(range(6)) if full_action_set else USEFUL[game]
    package_seed = int(seeding.np_random(11)[0].integers(2**32))
    ours = list(play(env, actions, seed=11))
    theirs = list(
        play_package(game, [useful[action] for action in actions], seed=package_seed, **kwargs)
    )
    for (obs, *rest), (state, *expected) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(obs, np.moveaxis(state, -1, 0))
        assert rest == expected
    assert sum(terminated for *_, terminated in ours) >= 2
    assert sum(reward for _, reward, _ in ours) > 0


@all_games
def test_defaults_are_the_packages(game: str) -> None:
    env, package = MinAtarEnv(game=game), Environment(game)
    assert env._game.sticky_action_prob == package.sticky_action_prob == 0.1
    assert getattr(env._game.env, "ramping", None) == getattr(package.env, "ramping", None)
    assert env.action_space.n == package.num_actions() == 6
    assert env.action_names == ("no-op", "left", "up", "right", "down", "fire")
    assert env.observation_space.shape == (CHANNELS[game], 10, 10)


@all_games
def test_the_minimal_set_names_what_its_actions_do(game: str) -> None:
    env = MinAtarEnv(game=game, full_action_set=False)
    assert env.action_names == tuple(minatar.ACTION_NAMES[action] for action in USEFUL[game])
    assert env.action_space == gym.spaces.Discrete(len(USEFUL[game]))


def test_paddle_goes_where_the_action_names_say() -> None:
    for full in (True, False):
        env = MinAtarEnv(game="breakout", full_action_set=full, sticky_action_prob=0.0)
        for name, column in (("no-op", 4), ("left", 3), ("right", 5)):
            env.reset(seed=0)
            observation, *_ = env.step(env.action_names.index(name))
            assert np.argwhere(observation[0]).tolist() == [[9, column]]


def test_always_sticky_actions_leave_the_first_no_op() -> None:
    env = MinAtarEnv(game="breakout", sticky_action_prob=1.0)
    for observation, *_ in play(env, [LEFT] * 50, seed=0):
        assert observation[0, 9, 4]


def test_ramping_makes_asterix_faster() -> None:
    ramping, steady = (MinAtarEnv(game="asterix", difficulty_ramping=on) for on in (True, False))
    for env in (ramping, steady):
        env.reset(seed=0)
        for _ in range(400):
            env._game.env.terminal = False  # whatever hits the player
            env.step(NOOP)
    assert ramping._game.env.difficulty_ramp() > 0
    assert steady._game.env.difficulty_ramp() == 0


@all_games
def test_a_seed_decides_the_play_whatever_came_before(game: str) -> None:
    new = MinAtarEnv(game=game, sticky_action_prob=0.8)
    used = MinAtarEnv(game=game, sticky_action_prob=0.8)
    actions = random_actions(new, 600)
    for seed in range(5):  # each leaves `used` amid an episode, with another last action
        for _ in play(used, [*actions[:50], LEFT, UP, FIRE, LEFT, UP, UP, UP], seed=100 + seed):
            pass
        expected = fingerprint(play(new, actions, seed=seed))
        assert fingerprint(play(used, actions, seed=seed)) == expected
    assert fingerprint(play(used, actions)) != expected
    assert fingerprint(play(used, actions, seed=5)) != expected


@all_games
def test_no_seed_goes_on_with_the_stream(game: str) -> None:
    envs = [MinAtarEnv(game=game) for _ in range(2)]
    actions = random_actions(envs[0], 300)
    first, second = (
        [fingerprint(play(env, actions, **reset)) for reset in ({"seed": 4}, {}, {})]
        for env in envs
    )
    assert first == second
    assert len({tuple(frames) for frames in first}) == 3


def test_the_last_action_is_forgotten_with_a_seed_only() -> None:
    env = MinAtarEnv(game="breakout", sticky_action_prob=0.0)
    for reset, column in (({}, 3), ({"seed": 1}, 4)):
        env.reset(seed=0)
        env.step(LEFT)
        env._game.sticky_action_prob = 1.0
        env.reset(**reset)
        observation, *_ = env.step(RIGHT)
        assert observation[0, 9, column]
        env._game.sticky_action_prob = 0.0


def test_environments_without_a_seed_differ() -> None:
    starts = {MinAtarEnv(game="freeway").reset()[0].tobytes() for _ in range(4)}
    assert len(starts) == 4


@all_games
def test_numpys_global_generator_is_neither_read_nor_moved(game: str) -> None:
    env = MinAtarEnv(game=game)
    actions = random_actions(env, 200)
    played = []
    for global_seed in (0, 1):
        np.random.seed(global_seed)
        before = np.random.get_state()[1].tobytes()
        played.append(fingerprint(play(env, actions, seed=2)))
        assert np.random.get_state()[1].tobytes() == before
    assert played[0] == played[1]


@all_games
@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))],  # noqa: S301 (our own bytes)
    ids=["copied", "pickled"],
)
def test_a_duplicate_plays_on_alike(game: str, duplicate: Any) -> None:
    env = MinAtarEnv(game=game)
    actions = random_actions(env, 300)
    for _ in play(env, actions[:100], seed=6):
        pass
    twin = duplicate(env)
    assert fingerprint(play(env, actions)) == fingerprint(play(twin, actions))


@all_games
def test_observations_are_the_callers_own_contiguous_arrays(game: str) -> None:
    env, undisturbed = MinAtarEnv(game=game), MinAtarEnv(game=game)
    actions = random_actions(env, 300)
    expected = fingerprint(play(undisturbed, actions, seed=8))
    kept, seen = [], []
    for observation, *rest in play(env, actions, seed=8):
        assert observation.dtype == env.observation_space.dtype == np.bool_
        assert observation.flags.c_contiguous
        assert observation.flags.owndata
        assert observation in env.observation_space
        kept.append(observation)
        seen.append((observation.tobytes(), *rest))
        observation[:] = ~observation  # the game must not notice
    assert seen == expected
    inverted = [(~observation).tobytes() for observation in kept]
    assert inverted == [observation for observation, *_ in expected]


@all_games
def test_the_space_draws_what_the_game_shows(game: str) -> None:
    space = MinAtarEnv(game=game).observation_space
    draw = space.sample()
    assert draw.dtype == np.bool_
    assert draw in space
    assert np.ones(space.shape, np.int8) * 2 not in space


@all_games
def test_uniform_states_are_binary_and_dark_where_nothing_lit(game: str) -> None:
    env = MinAtarEnv(game=game)
    sampler = UniformStateSampler(observation_space=env.observation_space, seed=0)
    assert sampler.bounds.integer_valued
    observations = np.stack([frame[0] for frame in play(env, random_actions(env, 200), seed=0)])
    for observation in observations:
        sampler.observe(observation)
    states = sampler.sample(400)
    assert states.dtype == np.bool_
    ever, always = observations.any(axis=0), observations.all(axis=0)
    assert ever.any()
    assert not ever.all()
    np.testing.assert_array_equal(states.any(axis=0), ever)
    np.testing.assert_array_equal(states.all(axis=0), always)


@all_games
def test_replay_buffer_takes_one_byte_per_cell(game: str) -> None:
    envs = DummyVectorEnv([lambda: MinAtarEnv(game=game)])
    envs.seed(0)
    obs, _ = envs.reset()
    buffer = ReplayBuffer(50)
    received = []
    for _ in range(50):
        obs_next, rew, terminated, truncated, info = envs.step(np.array([NOOP]))
        step = {"act": NOOP, "rew": rew[0], "terminated": terminated[0], "truncated": truncated[0]}
        buffer.add(Batch(obs=obs[0], obs_next=obs_next[0], info=info[0], **step))
        received.append((obs[0], obs_next[0]))
        obs = obs_next
    for stored, expected in zip(
        (buffer.obs, buffer.obs_next), zip(*received, strict=True), strict=True
    ):
        assert stored.dtype == np.bool_
        assert stored.nbytes == 50 * CHANNELS[game] * 100
        np.testing.assert_array_equal(stored, expected)
