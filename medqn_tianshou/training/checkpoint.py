"""Checkpoints: the state of a run as a file, when to write one, and which of them to keep."""

import time
from pathlib import Path
from typing import Any

import torch

from medqn_tianshou.files.atomic import atomic_write
from medqn_tianshou.files.container import Container, Format, write_container
from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
from medqn_tianshou.replay.file import ReplayFileError
from medqn_tianshou.training.options import CHECKPOINT_ENDING, CheckpointInterval
from medqn_tianshou.training.run_config import difference


class CheckpointError(ValueError):
    """A file that is no checkpoint, is damaged, or belongs to another run."""


BEFORE_EVALUATION = 0.1
"""The share of the interval after which a checkpoint is due if an evaluation follows."""
_FORMAT = Format(name="checkpt", version=2, noun="checkpoint", error=CheckpointError)


def write_checkpoint(
    path: Path, state: dict[str, Any], buffer: CompactVectorReplayBuffer | None = None
) -> None:
    """Write a checkpoint atomically.

    :param state: dictionaries with text as keys, lists, arrays, tensors, numbers, text and None.
    :param buffer: a compact replay buffer to write behind the state.
    """
    with atomic_write(path) as file:
        write_container(file, _FORMAT, _without_tensors(state))
        if buffer is not None:
            buffer.write_to(file)


def _without_tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, dict):
        return {key: _without_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tensors(item) for item in value]
    return value


def read_checkpoint(path: Path) -> tuple[dict[str, Any], CompactVectorReplayBuffer | None]:
    """Read what :func:`write_checkpoint` wrote.

    :raises CheckpointError: if the file is damaged, or no checkpoint.
    """
    try:
        with path.open("rb") as file:
            container = Container(file, _FORMAT)
            _FORMAT.require(isinstance(container.content, dict), "state")
            container.finish()
            has_buffer = container.trailing_nbytes > 0
            buffer = CompactVectorReplayBuffer.read_from(file) if has_buffer else None
    except (CheckpointError, ReplayFileError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from None
    return container.content, buffer


class Checkpoints:
    """Writes and reads the checkpoints of a run.

    :param identity: the run's settings; a checkpoint with another identity is not read.
    :param keep: how many to keep.
    """

    def __init__(
        self, run_folder: Path, *, identity: dict[str, Any], interval: CheckpointInterval, keep: int
    ) -> None:
        self.folder = run_folder / "checkpoints"
        self._mark = run_folder / "checkpointed"
        self._identity = identity
        self._interval = interval
        self._keep = keep
        self._last_env_step: int | None = None
        self._last_time = time.monotonic()

    def are_due(self, env_step: int, *, evaluation_follows: bool = False) -> bool:
        """Whether the next checkpoint is due; the first call starts counting steps.

        :param evaluation_follows: whether the next training step is the last one before an
            evaluation. A signal stops the run in the middle of an evaluation, which is not saved.
        """
        if self._last_env_step is None:
            self._last_env_step = env_step
        share = BEFORE_EVALUATION if evaluation_follows else 1.0
        steps, minutes = self._interval.env_steps, self._interval.minutes
        return (steps is not None and env_step - self._last_env_step >= share * steps) or (
            minutes is not None and time.monotonic() - self._last_time >= share * 60 * minutes
        )

    def write(
        self, env_step: int, state: dict[str, Any], buffer: CompactVectorReplayBuffer | None
    ) -> None:
        """Write a checkpoint, with the replay buffer if it is compact, and delete the oldest."""
        self.folder.mkdir(exist_ok=True)
        for partial in self.folder.glob(
            f".*{CHECKPOINT_ENDING}.part"
        ):  # of a process that was killed
            partial.unlink(missing_ok=True)
        path = self.folder / f"{env_step:012d}{CHECKPOINT_ENDING}"
        write_checkpoint(path, {"identity": self._identity, "state": state}, buffer)
        self._mark.touch()
        self._last_env_step, self._last_time = env_step, time.monotonic()
        for old in self.paths()[self._keep :]:
            old.unlink(missing_ok=True)

    def start_over(self) -> None:
        """Forget that the run ever had a checkpoint."""
        self._mark.unlink(missing_ok=True)

    @property
    def are_missing(self) -> bool:
        """Whether there is none, although one has been written."""
        return self._mark.exists() and not self.paths()

    def paths(self) -> list[Path]:
        """All complete checkpoints, newest first."""
        return sorted(self.folder.glob(f"[0-9]*{CHECKPOINT_ENDING}"), reverse=True)

    def read(self, path: Path) -> tuple[dict[str, Any], CompactVectorReplayBuffer | None]:
        """Read a checkpoint of this run."""
        content, buffer = read_checkpoint(path)
        for name in ("identity", "state"):
            if not isinstance(content.get(name), dict):
                raise CheckpointError(f"{path}: not a valid checkpoint (no {name})")
        changed = difference(content["identity"], self._identity)
        if changed:
            raise CheckpointError(f"{path}: of another run ({changed})")
        state: dict[str, Any] = content["state"]
        return state, buffer
