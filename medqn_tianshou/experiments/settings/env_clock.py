"""The settings of the MinAtar and the low-dimensional experiments; the TOML files have the values.

Both train in one environment, and all their clocks count its steps.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from medqn_tianshou.experiments.settings.files import load_settings, nearest
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import DQN, RUN, Count, CountOrZero, Flag, Range, Weight
from medqn_tianshou.training.memory import MB
from medqn_tianshou.training.settings import Head, Initialization, Optimizer, TrainingSettings


@dataclass(frozen=True, kw_only=True)
class EnvClockSettings(TrainingSettings):
    """The settings of a run in one environment, whose steps all clocks count."""

    warmup_counts: ClassVar[bool] = True
    process_nbytes: ClassVar[int] = 380 * MB
    kind_of_task: ClassVar[str]
    """What a task is, for the error that refuses another one."""

    steps: Annotated[Count, Flag("environment steps, warm-up included", RUN)]
    max_episode_steps: Annotated[
        CountOrZero, Flag("steps after which an episode is truncated; 0: never", RUN)
    ]
    return_window: Annotated[
        int,
        Range(at_least=1, at_most=1_000_000),
        Flag("number of training episodes to average a return over", RUN),
    ] = field()
    eval_every: Annotated[
        CountOrZero,
        Flag("environment steps between evaluations, which select the best policy; 0: never", RUN),
    ]
    eval_episodes: Annotated[
        int, Range(at_least=1, at_most=1_000_000), Flag("episodes per evaluation", RUN)
    ]
    bootstrap_timeouts: Annotated[
        bool,
        Flag("bootstrap at truncated steps, which the released code treats as terminal", RUN),
    ]
    target_update_env_steps: Annotated[
        Count, Flag("C_target: environment steps between target network copies", DQN)
    ]
    max_grad_norm: Annotated[
        Weight, Flag("clip the gradient to this norm; 0 does not clip", DQN)
    ] = field()
    optimizer: Optimizer = field()
    init: Annotated[
        Initialization,
        Flag("initialization of the network: torch's, or Kaiming for all layers or the last", DQN),
    ]

    @classmethod
    def check_task(cls, task: str, known: list[str]) -> None:
        """Refuse a task without settings in the family's file."""
        if task not in known:
            near = nearest(task, known)
            hint = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
            raise ConfigError("task", task, f"is not a {cls.kind_of_task}; {hint}")

    def check(self) -> None:
        """Check the values against each other, and the widths of the layers, if it has any."""
        self.require(
            self.steps > self.warmup_steps,
            "steps",
            f"must exceed the {self.warmup_steps} steps of --warmup-steps",
        )
        super().check()
        self.require(
            self.n_step < self.buffer_size,
            "n_step",
            f"is more than a buffer of {self.buffer_size} can look ahead; use at most "
            f"{self.buffer_size - 1} or a larger --buffer-size",
        )
        self.require(
            self.warmup_steps >= self.batch_size,
            "warmup_steps",
            f"does not fill a batch; use at least {self.batch_size}",
        )
        widths = getattr(self, "hidden_sizes", ())
        sound = len(widths) <= 16 and all(type(w) is int and 1 <= w <= 65_536 for w in widths)
        self.require(sound, "hidden_sizes", "must be at most 16 whole numbers from 1 to 65,536")

    @property
    def total_env_steps(self) -> int:
        """The length of the run."""
        return self.steps

    @property
    def env_steps_per_epoch(self) -> int:
        """Environment steps between evaluations."""
        return self.eval_every or self.steps

    @property
    def episodes_per_evaluation(self) -> int:
        """Episodes per evaluation."""
        return self.eval_episodes

    @property
    def target_copy_env_steps(self) -> int | None:
        """The paper's C_target."""
        return self.target_update_env_steps


_GAMES = sorted(load_settings("minatar")["task"])


@dataclass(frozen=True, kw_only=True)
class MinAtarSettings(EnvClockSettings):
    """The settings of a run on a MinAtar game."""

    family: ClassVar[str] = "minatar"
    summary: ClassVar[str] = "MinAtar games"
    description: ClassVar[str] = """\
Train MeDQN, or the baseline DQN, on a MinAtar game.

The defaults for a game and an algorithm are the paper's (Tables 7 to 10) and those of the released
code; freeway: our choice.
Needs the extra `minatar`, a package under the GPL. Examples:

  %(prog)s --task breakout --algo medqn-u
  %(prog)s --task seaquest --algo dqn --seed 3
"""
    default_task: ClassVar[str] = "breakout"
    kind_of_task: ClassVar[str] = "MinAtar game"

    task: Annotated[str, Flag(f"one of {', '.join(_GAMES)}", RUN, "breakout", aliases=("--game",))]
    seaquest_oxygen: Annotated[
        Literal["fixed", "flash"],
        Flag(
            "Seaquest's oxygen bar as in the installed MinAtar, or flash: as in MinAtar 1.0.10", RUN
        ),
    ]
    head: Head = field()


_TASKS = tuple(load_settings("lowdim")["task"])


@dataclass(frozen=True, kw_only=True)
class LowDimSettings(EnvClockSettings):
    """The settings of a run on a low-dimensional task."""

    family: ClassVar[str] = "lowdim"
    summary: ClassVar[str] = "MountainCar, Acrobot, Catcher, Pixelcopter"
    description: ClassVar[str] = """\
Train MeDQN, or the baseline DQN, on a low-dimensional task.

The defaults for a task and an algorithm are the paper's (Tables 3 to 6) and those of the released
code. Examples:

  %(prog)s --task MountainCar-v0 --algo medqn-u
  %(prog)s --task Catcher --algo dqn-s --seed 3
"""
    default_task: ClassVar[str] = _TASKS[0]
    kind_of_task: ClassVar[str] = "task of the paper"

    task: Annotated[str, Flag(f"one of {', '.join(_TASKS)}", RUN, _TASKS[0])]
    hidden_sizes: tuple[int, ...]
