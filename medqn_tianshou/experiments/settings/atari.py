"""The settings and options of the Atari experiments; their values are in ``atari.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from medqn_tianshou.experiments.settings.files import load_settings
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import (
    DQN,
    FILES,
    MOST_STEPS,
    RUN,
    Count,
    Flag,
    Range,
    existing_file,
)
from medqn_tianshou.training.memory import MB
from medqn_tianshou.training.options import RunOptions, torch_device
from medqn_tianshou.training.settings import Head, TrainingSettings

Backend = Literal["auto", "envpool", "ale"]


@dataclass(frozen=True, kw_only=True)
class AtariOptions(RunOptions):
    """Options of an Atari run."""

    device: Annotated[
        str | None,
        Flag("torch device", RUN, "cuda if available, else cpu", parse=torch_device),
    ] = None
    resume_path: Annotated[
        Path | None,
        Flag(
            "start from the parameters in this file, e.g. policy_best.safetensors",
            FILES,
            parse=existing_file,
        ),
    ] = None
    watch: Annotated[
        bool, Flag("play with the policy of --resume-path instead of training", FILES)
    ] = False
    render: Annotated[
        float,
        Range(at_least=0),
        Flag(
            "with --watch: show the game, pausing this many seconds per step", FILES,
            "0, no window",
        ),
    ] = 0.0  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.watch and self.resume_path is None:
            raise ConfigError(
                "watch", True, "needs a policy; give --resume-path RUN/policy_best.safetensors"
            )
        if self.render and not self.watch:
            raise ConfigError("render", self.render, "shows nothing in training; add --watch")
        if self.watch and self.resume is not None:
            remedy = "trains; to watch, give --resume-path and no --resume"
            raise ConfigError("resume", self.resume, remedy)

    @property
    def torch_device(self) -> str:
        """The device to train on."""
        import torch

        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, kw_only=True)
class AtariShorthands:
    """Flags that stand for several settings of an Atari run."""

    steps: Annotated[
        int | None,
        Range(at_least=1, at_most=MOST_STEPS),
        Flag("environment steps of the run, instead of --epoch", RUN, "epoch x step-per-epoch"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AtariSettings(TrainingSettings):
    """The settings of a run on an Atari game."""

    family: ClassVar[str] = "atari"
    summary: ClassVar[str] = "Atari games"
    description: ClassVar[str] = """\
Train MeDQN, or the baseline DQN, on an Atari game.

The defaults for a game and an algorithm are those of the released code. Examples:

  %(prog)s --task Qbert --buffer-size 100000
  %(prog)s --task Phoenix --algo dqn --memory 700M
  %(prog)s --task Qbert --watch --resume-path RUN/policy_best.safetensors
"""
    default_task: ClassVar[str] = "QbertNoFrameskip-v4"
    process_nbytes: ClassVar[int] = 460 * MB
    options_class: ClassVar[type[RunOptions]] = AtariOptions
    shorthands: ClassVar[type] = AtariShorthands
    other_algorithm_names: ClassVar[Mapping[str, str]] = {"medqn": "medqn-r"}

    task: Annotated[str, Flag("the game, e.g. Qbert or ALE/Qbert-v5", RUN, "Qbert")]
    epoch: Annotated[Count, Flag("epochs; each ends with an evaluation", RUN)]
    step_per_epoch: Annotated[Count, Flag("environment steps per epoch, 4 frames each", RUN)]
    training_num: Annotated[
        int, Range(at_least=1, at_most=4096), Flag("training environments", RUN)
    ]
    test_num: Annotated[
        int,
        Range(at_least=1, at_most=4096),
        Flag("episodes per evaluation, in as many environments as training", RUN),
    ]
    env_backend: Annotated[
        Backend,
        Flag(
            "EnvPool or ale-py, with the same observations; auto: ale-py for one environment", RUN
        ),
    ]
    target_update_freq: Annotated[Count, Flag("gradient steps between target network copies", DQN)]
    update_per_step: Annotated[
        float,
        Range(above=0, at_most=1_000),
        Flag("updates per environment step", DQN, "1 / step-per-collect"),
    ]
    warmup_steps: Annotated[
        Count,
        Flag("environment steps before the first update", DQN, "batch-size x training-num"),
    ]
    frames_stack: Annotated[
        int, Range(at_least=1, at_most=64), Flag("frames in an observation", DQN)
    ]
    scale_obs: Annotated[
        Literal[0, 1],
        Flag(
            "1: scale pixels to [0, 1]; 0: leave them at 0 to 255, as the released code does", DQN
        ),
    ]

    head: Head = field()

    @classmethod
    def canonical_task(cls, task: str, known: list[str]) -> str:
        """Return the one name of a game, e.g. QbertNoFrameskip-v4 of qbert."""
        if task.endswith("NoFrameskip-v4"):
            return task
        from medqn_tianshou.envs.atari import atari_tasks  # takes seconds

        return super().canonical_task(task, [*atari_tasks(), *known])

    @classmethod
    def expand(cls, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the length of a run by epochs; a short run has one of its own length."""
        values = dict(overrides)
        steps = values.pop("steps", None)
        if steps is None:
            return values
        if "epoch" in values:
            raise ConfigError("steps", steps, "is the run's length, as is --epoch; leave one out")
        usual = load_settings(cls.family)["common"]["step_per_epoch"]["value"]
        length = min(values.get("step_per_epoch", usual), steps)
        if steps % length:
            fewer = steps // length * length
            remedy = f"has no whole number of epochs of {length}; use {fewer} or {fewer + length}"
            raise ConfigError("steps", steps, f"{remedy}, or another --step-per-epoch")
        return {**values, "epoch": steps // length, "step_per_epoch": length}

    @classmethod
    def derive(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the defaults that follow from other values."""
        return {
            **super().derive(values),
            "update_per_step": 1 / values["step_per_collect"],
            "warmup_steps": values["batch_size"] * values["training_num"],
        }

    def check(self) -> None:
        """Check the values against each other."""
        interval, fewest_updates = self.step_per_collect, 1 / self.step_per_collect
        self.require(
            interval % self.training_num == 0,
            "training_num",
            f"does not divide the {interval} steps between updates; choose a divisor or another "
            "--step-per-collect",
        )
        self.require(
            self.step_per_epoch % interval == 0,
            "step_per_epoch",
            f"is not a multiple of the {interval} steps between updates; use "
            f"{-(-self.step_per_epoch // interval) * interval}",
        )
        self.require(
            round(self.update_per_step * interval) >= 1,
            "update_per_step",
            f"gives no update in {interval} steps; use at least {fewest_updates:g} or raise "
            "--step-per-collect",
        )
        smallest = self.training_num * (self.frames_stack + self.n_step)
        self.require(
            self.buffer_size >= smallest,
            "buffer_size",
            f"cannot store a frame stack and an n-step return; use at least {smallest}",
        )
        super().check()

    @property
    def warning(self) -> str | None:
        """A warning about the values for the user."""
        if self.lambda_end == 0 or self.sampling in ("real", "reservoir"):
            return None
        return (
            f"--sampling {self.sampling} samples each pixel independently, which gives states that "
            "do not look like frames of a game; the paper uses real"
        )

    @property
    def run_names(self) -> tuple[str, ...]:
        """The folders that lead to the run's folder."""
        algorithm = self.algo if self.sampling == "real" else f"{self.algo}-{self.sampling}"
        return self.task, algorithm, str(self.seed)

    @property
    def buffer_options(self) -> dict[str, Any]:
        """Make the replay buffer store each frame once."""
        return {
            "stack_num": self.frames_stack,
            "ignore_obs_next": True,
            "save_only_last_obs": True,
        }

    @property
    def total_env_steps(self) -> int:
        """The length of the run."""
        return self.epoch * self.step_per_epoch

    @property
    def env_steps_per_epoch(self) -> int:
        """Environment steps between evaluations."""
        return self.step_per_epoch

    @property
    def updates_per_env_step(self) -> float:
        """Updates per environment step."""
        return self.update_per_step

    @property
    def episodes_per_evaluation(self) -> int:
        """Episodes per evaluation."""
        return self.test_num

    @property
    def env_count(self) -> int:
        """Training environments."""
        return self.training_num

    @property
    def test_env_num(self) -> int:
        """Test environments: one, on ale-py, where training has one, to save EnvPool's 100 MB."""
        return min(self.test_num, self.training_num)

    @property
    def target_copy_gradient_steps(self) -> int | None:
        """Gradient steps between copies to the target network."""
        return self.target_update_freq
