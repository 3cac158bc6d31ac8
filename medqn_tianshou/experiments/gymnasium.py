"""Any Gymnasium environment with discrete actions: environment, network."""

from typing import Any

import gymnasium as gym
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary

from medqn_tianshou.algorithm.networks import MinAtarQNetwork, MLPQNetwork, NatureQNetwork
from medqn_tianshou.envs.observations import ChannelsFirst, DeclaredDtype, has_channels_last
from medqn_tianshou.experiments.family import EnvClockFamily
from medqn_tianshou.experiments.settings import GymSettings
from medqn_tianshou.training.errors import ConfigError, reason_of
from medqn_tianshou.training.settings import REPLAY_FREE

SMALLEST_FRAME = 36
"""Of the convolutions of :class:`NatureQNetwork`; smaller images have MinAtar's network."""


class GymFamily(EnvClockFamily[GymSettings]):
    """Environments by their ids; vectors have a network of dense layers, images convolutions."""

    settings_class = GymSettings

    def check(self, settings: GymSettings) -> None:
        """Check that the environment exists, and that its spaces fit."""
        self.make_env(settings).close()  # type: ignore[no-untyped-call]

    def make_env(
        self, settings: GymSettings, *, seed: int = 0, render_mode: str | None = None
    ) -> gym.Env[Any, Any]:
        """Build the environment, with observations of the declared type and channels first."""
        task, limit = settings.task, settings.max_episode_steps or None
        rendering: dict[str, Any] = (
            {} if render_mode is None else {"render_mode": render_mode}
        )  # not all know it
        try:
            env: Any = gym.make(task, max_episode_steps=limit, **rendering)
        except Exception as error:  # environments of others raise all kinds
            remedy = f"cannot be made ({reason_of(error)}); name an id of Gymnasium, or MODULE:ID"
            raise ConfigError("task", task, remedy) from error
        actions, states = env.action_space, env.observation_space
        if not isinstance(actions, Discrete) or actions.start != 0:
            remedy = f"has the actions {actions}; MeDQN needs Discrete ones that count from 0"
            raise ConfigError("task", task, remedy)
        if not isinstance(states, Box | MultiBinary) or len(states.shape or ()) not in (1, 3):
            remedy = (
                f"has the observations {states}; wrap it: vectors or images (3 axes) are needed"
            )
            raise ConfigError("task", task, remedy)
        env = DeclaredDtype(env)
        return ChannelsFirst(env) if has_channels_last(states) else env

    def make_network(self, settings: GymSettings, env: Any, device: str = "cpu") -> torch.nn.Module:
        """Build the Q network that fits the shape of the observations."""
        shape: tuple[int, ...] = env.observation_space.shape
        if settings.algo in REPLAY_FREE:
            if len(shape) == 3 and min(shape[1:]) >= SMALLEST_FRAME:
                remedy = "is for vectors and small grids; use another algorithm"
                raise ConfigError("algo", settings.algo, remedy)
            return self._replay_free_network(settings, env)
        options: dict[str, Any] = {
            "observation_shape": shape,
            "action_count": int(env.action_space.n),
            "dueling": settings.dueling,
        }
        if len(shape) == 1:
            sizes = settings.hidden_sizes
            network: torch.nn.Module = MLPQNetwork(
                **options, hidden_sizes=sizes, initialization=settings.init
            )
        elif min(shape[1:]) < SMALLEST_FRAME:
            network = MinAtarQNetwork(**options, initialization=settings.init)
        else:
            network = NatureQNetwork(**options, scale_uint8=True)
        return network.to(device)


GYM = GymFamily()
