"""Random play of Atari games on either backend."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from tianshou.env import BaseVectorEnv

from medqn_tianshou.envs.atari import make_atari_envs

both_backends = pytest.mark.parametrize("backend", ["envpool", "ale"])
both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


@contextmanager
def atari(game: str = "Breakout", **kwargs: Any) -> Iterator[BaseVectorEnv]:
    """One training environment of a game without random no-ops, unless told otherwise."""
    settings = {"num_envs": 1, "seed": 0, "training": True, "noop_max": 1} | kwargs
    envs = make_atari_envs(task=f"{game}NoFrameskip-v4", **settings)
    yield envs
    envs.close()


def random_play(envs: BaseVectorEnv, *, seed: int = 4) -> Iterator[dict[str, Any]]:
    """Play randomly in the first environment, yielding all that each reset and step returns."""
    actions = np.random.default_rng(seed)
    ended = True
    while True:
        if ended:
            obs, infos = envs.reset([0])
            yield {"first": True, "obs": obs[0], **infos[0]}
        action = actions.integers(envs.action_space[0].n, size=1)
        obs, rew, terminated, truncated, infos = envs.step(action, [0])
        ended = terminated[0] or truncated[0]
        step = {"first": False, "obs": obs[0], "rew": rew[0], **infos[0]}
        yield step | {"terminated": terminated[0], "truncated": truncated[0]}


@cache
def breakout(*, backend: str, training: bool) -> list[dict[str, Any]]:
    """Two games of Breakout, reset by reset and step by step."""
    with atari(backend=backend, training=training) as envs:
        return list(islice(random_play(envs), 200))
