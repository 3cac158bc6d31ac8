"""The low-dimensional experiments: tasks, network."""

import sys
from typing import Any

import gymnasium as gym

from medqn_tianshou.algorithm.networks import MLPQNetwork
from medqn_tianshou.envs.registration import register_envs
from medqn_tianshou.experiments.family import EnvClockFamily
from medqn_tianshou.experiments.settings import LowDimSettings

ENV_IDS = {"Catcher": "medqn/Catcher-v0", "Pixelcopter": "medqn/Pixelcopter-v0"}


class LowDimFamily(EnvClockFamily[LowDimSettings]):
    """MountainCar and Acrobot of Gymnasium; Catcher and Pixelcopter of this package."""

    settings_class = LowDimSettings
    network_class = MLPQNetwork

    def make_env(
        self, settings: LowDimSettings, *, seed: int = 0, render_mode: str | None = None
    ) -> gym.Env[Any, Any]:
        """Build the environment with the paper's episode limit."""
        register_envs()
        return gym.make(
            ENV_IDS.get(settings.task, settings.task),
            max_episode_steps=settings.max_episode_steps or sys.maxsize,
            render_mode=render_mode,
        )

    def network_options(self, settings: LowDimSettings, device: str) -> dict[str, Any]:
        """Return the widths of the layers, and their initialization."""
        return {"hidden_sizes": settings.hidden_sizes, "initialization": settings.init}


LOWDIM = LowDimFamily()
