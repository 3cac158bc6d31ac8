"""The trainings that benchmarks run: the command line of one of our scripts.

All that the benchmarks use of the families, their flags and settings is here.
"""

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tianshou.env import BaseVectorEnv, DummyVectorEnv
from torch import nn

from medqn_tianshou.commands.flags import make_train_parser
from medqn_tianshou.commands.train import parse_run
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.experiments.settings import AtariSettings, LowDimSettings
from medqn_tianshou.training.options import RunOptions

PIXEL_SCALE = 1 / 255
_SPACES: dict[tuple[str, str], tuple[Any, Any]] = {}


def import_family(family: str) -> Any:
    """Import the module that a script of ours runs, and all that it needs."""
    return import_module(f"medqn_tianshou.experiments.{family}")


class Setup:
    """A script with its flags. Our contestant runs it; the others read the settings from it."""

    def __init__(self, family: str, flags: Sequence[str]) -> None:
        self.family = FAMILIES[family]
        parser = make_train_parser(family)
        with parser.reporting():
            settings, options = parse_run(
                parser, self.family.settings_class, ["--device", "cpu", *flags]
            )
        self.value: Any = settings
        self.options: RunOptions = options

    @property
    def is_atari(self) -> bool:
        """Whether observations are frames."""
        return isinstance(self.value, AtariSettings)

    def prepare(self, folder: Path) -> Any:
        """Build our training as the script does, without a progress bar, its log in a folder."""
        options = replace(self.options, logdir=folder, show_progress=False)
        with redirect_stdout(io.StringIO()):
            return self.family.make_training(self.value, options)

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
        return bool(self.value.uses_whole_buffer)

    @property
    def target_update_env_steps(self) -> int:
        """Environment steps between copies to the target network."""
        # Where gradient steps are counted, each C_current environment steps bring one.
        by_gradient_steps = (
            self.value.target_copy_gradient_steps or 0
        ) * self.value.step_per_collect
        return int(self.value.target_copy_env_steps or by_gradient_steps)

    def make_env(self) -> Any:
        """Build the environment of a MinAtar or low-dimensional script."""
        return self.family.make_env(self.value)

    def make_vector_envs(self) -> Any:
        """Build the training environments as a vector for Tianshou."""
        if self.is_atari:
            return self.family.make_train_envs(self.value, self.value.seed)
        small: BaseVectorEnv = DummyVectorEnv([self.make_env])
        small.seed(self.value.seed)
        return small

    @property
    def spaces(self) -> tuple[Any, Any]:
        """The spaces of one observation and of one action."""
        key = self.family.name, self.value.task
        if key not in _SPACES:
            envs = self.make_vector_envs()
            _SPACES[key] = envs.observation_space[0], envs.action_space[0]
            envs.close()
        return _SPACES[key]

    def make_plain_network(self) -> nn.Sequential:
        """Build the paper's network in plain torch, from float observations to action values."""
        observation_space, action_space = self.spaces
        shape, actions = observation_space.shape, int(action_space.n)
        if self.is_atari:
            return nn.Sequential(
                nn.Conv2d(shape[0], 32, kernel_size=8, stride=4), nn.ReLU(inplace=True),
                nn.Conv2d(32, 64, kernel_size=4, stride=2), nn.ReLU(inplace=True),
                nn.Conv2d(64, 64, kernel_size=3, stride=1), nn.ReLU(inplace=True),
                nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(inplace=True),
                nn.Linear(512, actions),
            )  # fmt: skip
        if not isinstance(self.value, LowDimSettings):
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
