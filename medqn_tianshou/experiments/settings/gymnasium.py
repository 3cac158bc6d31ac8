"""The settings of runs on any Gymnasium environment; their values are in ``gym.toml``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from medqn_tianshou.experiments.settings.env_clock import EnvClockSettings
from medqn_tianshou.training.fields import CONSOLIDATION, DQN, RUN, Count, CountOrZero, Flag


@dataclass(frozen=True, kw_only=True)
class GymSettings(EnvClockSettings):
    """The settings of a run on a Gymnasium environment."""

    family: ClassVar[str] = "gym"
    summary: ClassVar[str] = "any Gymnasium environment with discrete actions"
    description: ClassVar[str] = """\
Train MeDQN or DQN on any Gymnasium environment that has discrete actions, and observations that are
vectors or images. The paper has no such experiments: the defaults are our choice. Examples:

  %(prog)s --task CartPole-v1
  %(prog)s --task CartPole-v1 --algo medqn-u --steps 20000
  %(prog)s --task my_package:MyEnv-v0
"""
    default_task: ClassVar[str] = "CartPole-v1"

    task: Annotated[
        str,
        Flag("a Gymnasium id, or MODULE:ID", RUN, "CartPole-v1", aliases=("--env",)),
    ]
    max_episode_steps: Annotated[
        CountOrZero,
        Flag("steps after which an episode is truncated; 0: the environment's own limit", RUN),
    ]
    eval_every: Annotated[
        CountOrZero,
        Flag(
            "environment steps between evaluations, which select the best policy; 0: never",
            RUN,
            "a tenth of --steps; pqn, stream-q 0",
        ),
    ]
    eps_decay_steps: Annotated[
        Count,
        Flag(
            "environment steps from the first to the last",
            DQN,
            "a tenth of --steps; stream-q a fifth",
        ),
    ]
    lambda_steps: Annotated[
        Count, Flag("env steps from the first weight to the last", CONSOLIDATION, "--steps")
    ]
    hidden_sizes: tuple[int, ...]

    @classmethod
    def derive(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the defaults that follow from the length of the run."""
        tenth = max(values["steps"] // 10, 1)
        of_length = {"lambda_steps": values["steps"], "eps_decay_steps": tenth, "eval_every": tenth}
        return {**super().derive(values), **of_length}

    @property
    def run_names(self) -> tuple[str, ...]:
        """The folders that lead to the run's folder: the task without its module or namespace."""
        return re.split("[/:]", self.task)[-1], self.algo, str(self.seed)

    @classmethod
    def check_task(cls, task: str, known: list[str]) -> None:
        """Accept every id: Gymnasium refuses those that it does not have."""
