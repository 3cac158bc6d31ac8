"""The trainings that benchmarks run: the command line of one of our scripts.

All that the benchmarks use of the families, their flags and settings is here.
"""

import io
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
from tianshou.env import BaseVectorEnv, DummyVectorEnv
from torch import nn

from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.experiments.settings import Settings, setting_values
from medqn_tianshou.training.build import uses_whole_buffer

PIXEL_SCALE = 1 / 255
_SPACES: dict[tuple[str, str], tuple[Any, Any]] = {}


def import_family(family: str) -> Any:
    """Import the module that a script of ours runs, and all that it needs."""
    return import_module(f"medqn_tianshou.experiments.{family}")


class Setup:
    """A script with its flags. Our contestant runs it; the others read the settings from it."""

    def __init__(self, family: str, flags: Sequence[str]) -> None:
        self.family = family
        self.script = import_family(family)
        self.parser: Parser = self.script.make_parser()
        self.args: Namespace = self.parser.parse_args(["--device", "cpu", *flags])
        self.settings: Settings = self.script.resolve(self.parser, self.args)
        self.value: SimpleNamespace = setting_values(self.settings)

    def prepare(self, folder: Path) -> Any:
        """Build our training as the script does, without a progress bar, its log in a folder."""
        self.args.logdir = folder
        self.args.no_progress = True
        with redirect_stdout(io.StringIO()):
            return self.script.prepare(self.parser, self.args, self.settings)

    @property
    def consolidates(self) -> bool:
        """Whether it is MeDQN, and not DQN."""
        return bool(self.value.lambda_end > 0)

    @property
    def epsilon(self) -> float:
        """The one exploration rate of the run."""
        if self.value.eps_train != self.value.eps_train_final:
            raise ValueError("the exploration rate must not change while speed is measured")
        return float(self.value.eps_train)

    @property
    def whole_buffer(self) -> bool:
        """Whether an update takes all transitions there are, as MeDQN(U) does."""
        return uses_whole_buffer(self.settings)

    @property
    def target_update_env_steps(self) -> int:
        """Environment steps between copies to the target network."""
        if self.family == "atari":
            # The Atari setting counts gradient steps: one per step_per_collect environment steps.
            return int(self.value.target_update_freq * self.value.step_per_collect)
        return int(self.value.target_update_env_steps)

    def make_env(self) -> Any:
        """Build the environment of a MinAtar or low-dimensional script."""
        env: gym.Env[Any, Any] = self.script.make_env(self.args.task, self.settings)
        return env

    def make_vector_envs(self) -> Any:
        """Build the training environments as a vector for Tianshou."""
        if self.family == "atari":
            envs: BaseVectorEnv = self.script.make_envs(
                self.args, self.settings, seed=self.args.seed, training=True
            )
            return envs
        small: BaseVectorEnv = DummyVectorEnv([self.make_env])
        small.seed(self.args.seed)
        return small

    @property
    def spaces(self) -> tuple[Any, Any]:
        """The spaces of one observation and of one action."""
        key = self.family, self.args.task
        if key not in _SPACES:
            envs = self.make_vector_envs()
            _SPACES[key] = envs.observation_space[0], envs.action_space[0]
            envs.close()
        return _SPACES[key]

    def make_plain_network(self) -> nn.Sequential:
        """Build the paper's network in plain torch, from float observations to action values."""
        observation_space, action_space = self.spaces
        shape, actions = observation_space.shape, int(action_space.n)
        if self.family == "atari":
            return nn.Sequential(
                nn.Conv2d(shape[0], 32, kernel_size=8, stride=4), nn.ReLU(inplace=True),
                nn.Conv2d(32, 64, kernel_size=4, stride=2), nn.ReLU(inplace=True),
                nn.Conv2d(64, 64, kernel_size=3, stride=1), nn.ReLU(inplace=True),
                nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(inplace=True),
                nn.Linear(512, actions),
            )  # fmt: skip
        if self.family == "minatar":
            return nn.Sequential(
                nn.Conv2d(shape[0], 16, kernel_size=3), nn.ReLU(inplace=True),
                nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(inplace=True),
                nn.Linear(128, actions),
            )  # fmt: skip
        first, second = self.value.hidden_sizes
        return nn.Sequential(
            nn.Linear(shape[0], first), nn.ReLU(inplace=True),
            nn.Linear(first, second), nn.ReLU(inplace=True),
            nn.Linear(second, actions),
        )  # fmt: skip
