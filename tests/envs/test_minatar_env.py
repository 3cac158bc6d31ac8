"""MinAtar's games through our environment against the MinAtar package itself."""

import copy
import pickle
import runpy
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env
from minatar import Environment
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer
from tianshou.env import DummyVectorEnv

from medqn_tianshou.algorithm.samplers import UniformStateSampler
from medqn_tianshou.envs import minatar
from medqn_tianshou.envs.minatar import (
    MINATAR_GAMES,
    MinAtarEnv,
    minatar_task,
    register_minatar_games,
)

NOOP, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
CHANNELS = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}
USEFUL = {
    "asterix": [NOOP, LEFT, UP, RIGHT, DOWN],
    "breakout": [NOOP, LEFT, RIGHT],
    "freeway": [NOOP, UP, DOWN],
    "seaquest": [NOOP, LEFT, UP, RIGHT, DOWN, FIRE],
    "space_invaders": [NOOP, LEFT, RIGHT, FIRE],
}

all_games = pytest.mark.parametrize("game", MINATAR_GAMES)

Frame = tuple[NDArray[np.bool_], float, bool]
"""An observation with the reward and the end that came with it."""


def random_actions(env: MinAtarEnv, count: int, *, seed: int = 3) -> list[np.int64]:
    """Draw actions, most of them "up" in freeway: it rewards nothing but the top."""
    weights = np.ones(len(env.action_names))
    if env.game == "freeway":
        weights[env.action_names.index("up")] = 12
    return list(np.random.default_rng(seed).choice(len(weights), count, p=weights / weights.sum()))


def play(env: MinAtarEnv, actions: Iterable[int | np.int64], **reset: Any) -> Iterator[Frame]:
    """Reset and play, with a further reset after each end of an episode."""
    yield env.reset(**reset)[0], 0.0, False
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        assert type(reward) is float
        assert type(terminated) is bool
        assert truncated is False
        assert info == {}
        yield observation, reward, terminated
        if terminated:
            yield env.reset()[0], 0.0, False


def play_package(
    game: str, actions: Iterable[int | np.int64], *, seed: int, **kwargs: Any
) -> Iterator[Frame]:
    """The same with MinAtar alone."""
    env = Environment(game, **kwargs)
    env.seed(seed)
    env.reset()
    yield env.state(), 0.0, False
    for action in actions:
        reward, terminated = env.act(action)
        yield env.state(), reward, terminated
        if terminated:
            env.reset()
            yield env.state(), 0.0, False


def fingerprint(frames: Iterable[Frame]) -> list[tuple[bytes, float, bool]]:
    return [(obs.tobytes(), reward, terminated) for obs, reward, terminated in frames]


# --- Against the package --------------------------------------------------------------------------


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


# --- Seeds ----------------------------------------------------------------------------------------


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


# --- Observations ---------------------------------------------------------------------------------


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


# --- As registered environments -------------------------------------------------------------------


@all_games
def test_registered_games_pass_gymnasiums_checker(game: str) -> None:
    register_minatar_games()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_minatar_games()  # again: no warning that it overrides
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
    register_minatar_games()
    env = gym.make("medqn/MinAtar-Seaquest-v0")
    env.reset(seed=0)
    for step in range(1, 10_001):
        _, _, terminated, truncated, _ = env.step(NOOP)
        assert (terminated, truncated) == (False, step == 10_000)


def test_options_pass_through_make() -> None:
    register_minatar_games()
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


# --- Rendering ------------------------------------------------------------------------------------


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


# --- Errors ---------------------------------------------------------------------------------------


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
    with pytest.raises(ImportError, match=r"pip install 'medqn-tianshou\[minatar\]'"):
        module["MinAtarEnv"](game="breakout")
    with pytest.raises(ValueError, match="did you mean 'breakout'"):
        module["MinAtarEnv"](game="brekout")
