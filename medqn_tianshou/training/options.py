"""The options of a run that do not affect learning: device, files, checkpoints, resuming."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import FILES, RUN, Count, Flag, check_fields

WandbMode = Literal["online", "offline"]
CHECKPOINT_ENDING = ".checkpoint"
"""The suffix of the files in ``checkpoints/`` of a run folder."""


@dataclass(frozen=True, kw_only=True)
class CheckpointInterval:
    """How often to write a checkpoint: whichever of the two comes first."""

    env_steps: int | None = None
    minutes: float | None = None


def checkpoint_interval(text: str) -> CheckpointInterval:
    """Read ``50000`` (environment steps), ``10m`` (minutes) or ``50000,10m``."""
    interval: dict[str, Any] = {}
    for part in text.split(","):
        minutes = re.fullmatch(r"(\d+(?:\.\d+)?)m", part)
        if minutes and 0.01 <= float(minutes[1]) <= 1e6 and "minutes" not in interval:
            interval["minutes"] = float(minutes[1])
        elif re.fullmatch(r"\d{1,12}", part) and int(part) > 0 and "env_steps" not in interval:
            interval["env_steps"] = int(part)
        else:
            raise ValueError(
                f"{text!r} must be environment steps (50000), minutes (10m, at least 0.01m), or "
                "both (50000,10m)"
            )
    return CheckpointInterval(**interval)


def torch_device(text: str) -> str:
    """Read the name of a device that this machine has."""
    import torch

    try:
        torch.zeros(1, device=torch.device(text)).tolist()  # the device "meta" has no values
    except (RuntimeError, AssertionError, NotImplementedError):
        have = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        problem = f"is not a device of this machine; it has {', '.join(have)}"
        raise ValueError(f"{text!r} {problem}") from None
    return text


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run. A run may be resumed with other values of those that have a flag here.

    :param resume_path: a policy's parameters to start from.
    :param watch: play with the policy of ``resume_path`` instead of training.
    :param render: seconds to show each step of the game while watching; 0 opens no window.
    :param arguments: the command line; None for a run that was started from Python.
    """

    device: Annotated[str | None, Flag("torch device", RUN, "cpu", parse=torch_device)] = None
    logdir: Annotated[Path, Flag("where run folders go", FILES, "log", parse=Path)] = Path("log")
    show_progress: Annotated[bool, Flag("print no progress", FILES, name="--no-progress")] = True
    resume: Annotated[
        Path | None,
        Flag(
            "resume the run in this folder, with its own settings, from its last checkpoint; for a "
            "folder such as log, or a task: its newest unfinished run",
            FILES,
            parse=Path,
        ),
    ] = None
    auto_resume: Annotated[
        bool,
        Flag(
            "resume the newest unfinished run of these settings in --logdir, else start one", FILES
        ),
    ] = False
    start_over: Annotated[
        bool,
        Flag("with --resume: if the checkpoints are gone, delete the logs and start over", FILES),
    ] = False
    checkpoint_every: Annotated[
        CheckpointInterval,
        Flag(
            "environment steps (50000), minutes (10m) or both (50000,10m), whichever comes first; "
            "before an evaluation, a tenth of them",
            FILES,
            "10m",
            parse=checkpoint_interval,
        ),
    ] = CheckpointInterval(minutes=10)
    keep_checkpoints: Annotated[Count, Flag("how many checkpoints to keep", FILES, "2")] = 2
    wandb: Annotated[
        str | None,
        Flag(
            "also log to this project of Weights & Biases: PROJECT or ENTITY/PROJECT",
            FILES,
            metavar="PROJECT",
        ),
    ] = None
    wandb_mode: Annotated[
        WandbMode | None,
        Flag(
            "with --wandb: offline writes files for `wandb sync` (default: W&B's own, WANDB_MODE)",
            FILES,
        ),
    ] = None
    resume_path: Path | None = None
    watch: bool = False
    render: float = 0.0
    arguments: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.auto_resume and self.resume is not None:
            remedy = "finds the run itself; leave --resume out, or this"
            raise ConfigError("auto_resume", True, remedy)

    @property
    def torch_device(self) -> str:
        """The device to train on."""
        return self.device or "cpu"
