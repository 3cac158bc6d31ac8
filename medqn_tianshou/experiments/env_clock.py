"""Families with one environment, whose steps all clocks count."""

from typing import TypeVar

from tianshou.env import BaseVectorEnv

from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.experiments.family import Family
from medqn_tianshou.experiments.settings import EnvClockSettings

E = TypeVar("E", bound=EnvClockSettings)


class EnvClockFamily(Family[E]):
    """A family that trains in one environment."""

    def make_train_envs(self, settings: E, seed: int) -> BaseVectorEnv:
        """Build the environment to learn in."""
        return self._single(settings, seed, timeouts_terminate=not settings.bootstrap_timeouts)

    def make_test_envs(self, settings: E, seed: int) -> BaseVectorEnv | None:
        """Build the environment to evaluate in, if the settings ask for evaluations."""
        return self._single(settings, seed) if settings.eval_every else None

    def _single(self, settings: E, seed: int, *, timeouts_terminate: bool = False) -> BaseVectorEnv:
        envs = SingleVectorEnv(self.make_env(settings), timeouts_terminate=timeouts_terminate)
        envs.seed(seed)
        return envs
