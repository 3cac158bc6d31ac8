"""The low-dimensional experiments: tasks, network."""

import sys
from typing import Any

import gymnasium as gym

from medqn_tianshou.algorithm.networks import MLPQNetwork
from medqn_tianshou.envs.registration import register_envs
from medqn_tianshou.experiments.env_clock import EnvClockFamily
from medqn_tianshou.experiments.settings import LowDimSettings

ENV_IDS = {"Catcher": "medqn/Catcher-v0", "Pixelcopter": "medqn/Pixelcopter-v0"}


class LowDimFamily(EnvClockFamily[LowDimSettings]):
    """MountainCar and Acrobot of Gymnasium; Catcher and Pixelcopter of this package."""

    settings_class = LowDimSettings

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

    def make_network(self, settings: LowDimSettings, env: Any, device: str = "cpu") -> MLPQNetwork:
        """Build a network of fully connected layers."""
        return MLPQNetwork(
            observation_shape=env.observation_space.shape or (),
            action_count=int(env.action_space.n),
            hidden_sizes=settings.hidden_sizes,
            dueling=settings.dueling,
            initialization=settings.init,
        ).to(device)


LOWDIM = LowDimFamily()
