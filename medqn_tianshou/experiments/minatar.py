"""The MinAtar experiments: games, network."""

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit

from medqn_tianshou.algorithm.networks import MinAtarQNetwork
from medqn_tianshou.envs.minatar import MinAtarEnv
from medqn_tianshou.experiments.family import EnvClockFamily
from medqn_tianshou.experiments.settings import MinAtarSettings
from medqn_tianshou.training.errors import ConfigError


class MinAtarFamily(EnvClockFamily[MinAtarSettings]):
    """MinAtar games with their full action set."""

    settings_class = MinAtarSettings
    network_class = MinAtarQNetwork
    extra = "minatar"

    def make_env(
        self, settings: MinAtarSettings, *, seed: int = 0, render_mode: str | None = None
    ) -> gym.Env[Any, Any]:
        """Build the game with the paper's episode limit."""
        try:
            env = MinAtarEnv(
                game=settings.task,
                seaquest_oxygen=settings.seaquest_oxygen,
                render_mode=render_mode,
            )
        except ImportError as error:
            raise ConfigError("task", settings.task, f"cannot be played: {error}") from error
        limit = settings.max_episode_steps
        return TimeLimit(env, limit) if limit else env

    def network_options(self, settings: MinAtarSettings, device: str) -> dict[str, Any]:
        """Return the initialization."""
        return {"initialization": settings.init}


MINATAR = MinAtarFamily()
