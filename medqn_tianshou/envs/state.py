"""The state of environments that can be saved and restored."""

from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.acrobot import AcrobotEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from gymnasium.wrappers.time_limit import TimeLimit
from tianshou.env import BaseVectorEnv, VectorEnvWrapper

from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.files.generators import generator_state, set_generator_state
from medqn_tianshou.files.schema import array, check_at, list_of, whole

# Any, because Gymnasium types the state of these classes too narrowly.
_WITH_STATE: Any = (MountainCarEnv, AcrobotEnv)
_FAR = 100.0
"""Beyond all positions, angles and velocities of these."""


@runtime_checkable
class Restorable(Protocol):
    """A game whose state can be restored; its generator is saved separately."""

    def game_state(self) -> dict[str, Any]:
        """Return everything that later play depends on, except :attr:`np_random`."""

    def set_game_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`game_state` returned."""


def envs_state(envs: BaseVectorEnv) -> dict[str, Any] | None:
    """Return the state of a single environment in this process.

    The result is None for EnvPool, for worker processes and for unknown environments.
    """
    env = _single(envs)
    if env is None:
        return None
    base: Any = env.unwrapped
    if isinstance(base, _WITH_STATE):
        game: dict[str, Any] = {"state": np.asarray(base.state)}
    elif isinstance(base, Restorable):
        game = base.game_state()
    else:
        return None
    return {
        "game": game,
        "generator": generator_state(base.np_random),
        "action_space": generator_state(env.action_space.np_random),
        "elapsed": [limit._elapsed_steps for limit in _time_limits(env)],
    }


def set_envs_state(envs: BaseVectorEnv, state: dict[str, Any]) -> None:
    """Continue from what :func:`envs_state` returned for environments built and seeded alike."""
    env = _single(envs)
    if env is None:
        raise ValueError("the state of these environments cannot be restored")
    base: Any = env.unwrapped
    if isinstance(base, _WITH_STATE):
        saved = state["game"]["state"]
        array(None, *np.shape(base.state), at_least=-_FAR, at_most=_FAR)(saved)
        base.state = saved
    else:
        base.set_game_state(state["game"])
    set_generator_state(base.np_random, state["generator"])
    set_generator_state(env.action_space.np_random, state["action_space"])
    limits = _time_limits(env)
    check_at("elapsed", list_of(whole(), len(limits)), state["elapsed"])
    for limit, elapsed in zip(limits, state["elapsed"], strict=True):
        limit._elapsed_steps = elapsed


def _single(envs: BaseVectorEnv) -> gym.Env[Any, Any] | None:
    while isinstance(envs, VectorEnvWrapper):
        envs = envs.venv
    return envs.env if isinstance(envs, SingleVectorEnv) else None


def _time_limits(env: gym.Env[Any, Any]) -> list[TimeLimit]:
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(env)
        env = env.env
    return limits
