"""The state of environments that can be saved and restored."""

from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.acrobot import AcrobotEnv
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from gymnasium.wrappers import TimeLimit
from tianshou.env import BaseVectorEnv

from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.envs.workers import WorkerVectorEnv
from medqn_tianshou.files.generators import generator_state, set_generator_state
from medqn_tianshou.files.schema import anything, array, check_at, list_of, whole

# Any, because Gymnasium types the state of these classes too narrowly.
_WITH_STATE: Any = (MountainCarEnv, AcrobotEnv, CartPoleEnv)
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
    """Return the state of an environment in this process, or of Atari games in worker processes.

    The result is None for EnvPool and for unknown environments.
    """
    if isinstance(envs, SingleVectorEnv):
        return env_state(envs.env)
    if isinstance(envs, WorkerVectorEnv):
        states = envs.get_env_attr("saved_state")
        return None if None in states else {"workers": states}
    return None


def set_envs_state(envs: BaseVectorEnv, state: dict[str, Any]) -> None:
    """Continue from what :func:`envs_state` returned for environments built and seeded alike."""
    if isinstance(envs, SingleVectorEnv):
        set_env_state(envs.env, state)
    elif isinstance(envs, WorkerVectorEnv):
        check_at("workers", list_of(anything, len(envs)), state["workers"])
        for number, saved in enumerate(state["workers"]):
            envs.set_env_attr("saved_state", saved, number)
        if problems := list(filter(None, envs.get_env_attr("restore_problem"))):
            raise ValueError(problems[0])
    else:
        raise ValueError("the state of these environments cannot be restored")


def describe_resume(envs: BaseVectorEnv) -> str:
    """Describe whether a run in some environments can be resumed exactly."""
    if isinstance(envs, SingleVectorEnv):
        exact = _can_be_saved(envs.env)
    else:
        exact = isinstance(envs, WorkerVectorEnv) and None not in envs.get_env_attr("saved_state")
    if exact:
        return "exact"
    hint = getattr(envs, "resume_hint", "")
    return f"not exact, as these environments then start new episodes{hint}"


def _can_be_saved(env: gym.Env[Any, Any]) -> bool:
    return isinstance(env.unwrapped, (*_WITH_STATE, Restorable))


def env_state(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the state of an environment; None for an unknown one."""
    if not _can_be_saved(env):
        return None
    base: Any = env.unwrapped
    if isinstance(base, _WITH_STATE):
        game: dict[str, Any] = {"state": np.asarray(base.state)}
    else:
        game = base.game_state()
    return {
        "game": game,
        "generator": generator_state(base.np_random),
        "action_space": generator_state(env.action_space.np_random),
        "elapsed": [limit._elapsed_steps for limit in _time_limits(env)],
    }


def set_env_state(env: gym.Env[Any, Any], state: dict[str, Any]) -> None:
    """Continue from what :func:`env_state` returned."""
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


def _time_limits(env: gym.Env[Any, Any]) -> list[TimeLimit]:
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(env)
        env = env.env
    return limits
