"""Play of MinAtar's games, through our environment and without it."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from minatar import Environment
from numpy.typing import NDArray

from medqn_tianshou.envs.minatar import (
    MINATAR_GAMES,
    MinAtarEnv,
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
