"""A checkpoint as a file: the state of a run, and behind it the compact replay buffer, if any."""

from pathlib import Path
from typing import Any

import torch

from medqn_tianshou.files.atomic import atomic_write
from medqn_tianshou.files.container import Container, Format, write_container
from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
from medqn_tianshou.replay.file import ReplayFileError


class CheckpointError(ValueError):
    """A file that is no checkpoint, is damaged, or belongs to another run."""


_FORMAT = Format(name="checkpt", version=2, noun="checkpoint", error=CheckpointError)


def write_checkpoint(
    path: Path, state: dict[str, Any], buffer: CompactVectorReplayBuffer | None = None
) -> None:
    """Write a checkpoint, whole or not at all.

    :param state: dictionaries with text as keys, lists, arrays, tensors, numbers, text and None.
    :param buffer: a compact replay buffer to write behind it, piece by piece.
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
            state = container.content
            _FORMAT.require(isinstance(state, dict), "state")
            container.finish()
            has_buffer = container.trailing_nbytes > 0
            buffer = CompactVectorReplayBuffer.read_from(file) if has_buffer else None
    except (CheckpointError, ReplayFileError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from None
    return state, buffer
