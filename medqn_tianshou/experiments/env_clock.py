"""Families with one environment, whose steps all clocks count."""

from typing import Any, TypeVar

import numpy as np
from tianshou.env import BaseVectorEnv, VectorEnvWrapper

from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.experiments.family import Family
from medqn_tianshou.experiments.settings import EnvClockSettings

E = TypeVar("E", bound=EnvClockSettings)


class EnvClockFamily(Family[E]):
    """A family that trains in one environment."""

    def make_train_envs(self, settings: E, seed: int) -> BaseVectorEnv:
        """Build the environment to learn in."""
        envs = self._single(settings, seed)
        return envs if settings.bootstrap_timeouts else TimeoutIsTerminal(envs)

    def make_test_envs(self, settings: E, seed: int) -> BaseVectorEnv | None:
        """Build the environment to evaluate in, if the settings ask for evaluations."""
        return self._single(settings, seed) if settings.eval_every else None

    def _single(self, settings: E, seed: int) -> BaseVectorEnv:
        envs = SingleVectorEnv(self.make_env(settings))
        envs.seed(seed)
        return envs


class TimeoutIsTerminal(VectorEnvWrapper):
    """Turns truncations into terminations, so that nothing is bootstrapped there."""

    def step(self, action: Any, id: Any = None) -> Any:  # noqa: A002 (Tianshou's name)
        """Step, and turn truncations into terminations."""
        obs, rew, terminated, truncated, info = self.venv.step(action, id)
        return obs, rew, terminated | truncated, np.zeros_like(truncated), info
