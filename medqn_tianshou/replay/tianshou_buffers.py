"""What Tianshou's replay buffers lack: draws that follow a seed, and a count of their bytes."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from tianshou.data import Batch, ReplayBuffer

Replay = Literal["compact", "raw"]


def seed_replay_buffer(buffer: ReplayBuffer, seed: int) -> None:
    """Make a buffer's draws follow a seed.

    Tianshou 1.2 seeds every buffer, and every part of a vector buffer, with 42. Prioritized buffers
    draw from numpy's global generator instead, which the caller seeds.

    :param buffer: the buffer, before its first draw.
    :param seed: the run's seed.
    """
    parts = [buffer, *getattr(buffer, "buffers", [])]
    for part, sequence in zip(parts, np.random.SeedSequence(seed).spawn(len(parts)), strict=True):
        part._random_state = np.random.RandomState(np.random.MT19937(sequence))


def replay_nbytes(buffer: ReplayBuffer) -> int:
    """Count the bytes a buffer holds: transitions, and the index arrays beside them.

    :param buffer: any of Tianshou's buffers. Before its first transition it has no storage yet.
    """
    if hasattr(buffer, "nbytes"):  # it knows
        return int(buffer.nbytes)
    parts = [buffer, *getattr(buffer, "buffers", [])]
    # The parts of a vector buffer are views into its storage: count that once.
    return _batch_nbytes(buffer._meta) + sum(_batch_nbytes(part._indices) for part in parts)


def predict_replay_nbytes(
    make_buffer: Callable[[int], ReplayBuffer], example: Batch, size: int
) -> int:
    """Tell how many bytes a full buffer will hold, by measuring a small one of the same kind.

    :param make_buffer: builds the buffer for a number of transitions.
    :param example: one transition for each environment.
    :param size: the number of transitions asked for.
    """
    probe = make_buffer(len(example))
    probe.add(example, buffer_ids=np.arange(len(example)))
    # A vector buffer rounds its size up to a multiple of its parts.
    parts = len(getattr(probe, "buffers", [probe]))
    slots = -(-size // parts) * parts
    return replay_nbytes(probe) // probe.maxsize * slots


def _batch_nbytes(value: Any) -> int:
    if isinstance(value, Batch):
        return sum(_batch_nbytes(item) for item in value.values())
    return int(getattr(value, "nbytes", 0))
