"""One environment behind the interface of Tianshou's vector environments."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from tianshou.env import BaseVectorEnv
from tianshou.env.venvs import GYM_RESERVED_KEYS


class SingleVectorEnv(BaseVectorEnv):
    """Plays as a ``DummyVectorEnv`` of one environment does, without the overhead of a worker.

    Arguments that select environments are ignored, as there is only one.

    :param env: the environment; its observations are arrays.
    :param timeouts_terminate: report truncations as terminations, so that no target bootstraps
        from the states in which they happen.
    """

    __getattribute__ = object.__getattribute__  # the base class's is slow

    def __getattr__(self, key: str) -> Any:
        """Return what Tianshou asks the environment for, such as its spaces."""
        if key in GYM_RESERVED_KEYS:
            return self.get_env_attr(key)
        raise AttributeError(f"{type(self).__name__} has no attribute {key!r}")

    # super().__init__ is not called: it would start workers.
    def __init__(self, env: gym.Env[Any, Any], *, timeouts_terminate: bool = False) -> None:
        self.env = env
        self.timeouts_terminate = timeouts_terminate
        self.env_num = 1
        self.is_async = False
        self.is_closed = False

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:  # noqa: A002 (Tianshou's name)
        """Return an attribute of the environment; Tianshou reads the spaces in this way."""
        return [getattr(self.env, key)]

    def set_env_attr(self, key: str, value: Any, id: Any = None) -> None:  # noqa: A002
        """Set an attribute of the environment."""
        setattr(self.env.unwrapped, key, value)

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Start the next episode."""
        obs, info = self.env.reset(**kwargs)
        return np.array([obs]), np.array([info])

    def play_alone(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one action, and return what the environment returns."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if truncated and self.timeouts_terminate:
            terminated, truncated = True, False
        return obs, reward, terminated, truncated, info

    def step(
        self,
        action: Any,
        id: Any = None,  # noqa: A002
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Play one action, given as an array of one."""
        obs, reward, terminated, truncated, info = self.play_alone(action[0])
        info["env_id"] = 0
        return (
            np.array([obs]),
            np.array([reward]),
            np.array([terminated]),
            np.array([truncated]),
            np.array([info]),
        )

    def seed(self, seed: Any = None) -> list[list[int] | None]:
        """Seed the environment and its action space with a number or a list of one."""
        value = seed[0] if isinstance(seed, list) else seed
        self.env.action_space.seed(value)
        self.env.reset(seed=value)
        return [None if value is None else [value]]

    def render(self, **kwargs: Any) -> list[Any]:
        """Render the environment."""
        return [self.env.render(**kwargs)]

    def close(self) -> None:
        """Close the environment."""
        self.env.close()  # type: ignore[no-untyped-call]
        self.is_closed = True
