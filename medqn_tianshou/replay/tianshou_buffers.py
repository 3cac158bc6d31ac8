"""Functions for Tianshou's own replay buffers: seeds, byte counts, saved states."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer

from medqn_tianshou.files.generators import State, generator_state, set_generator_state

_PART_FIELDS = ("_insertion_idx", "_size", "_ep_return", "_ep_len", "_ep_start_idx")


def seed_replay_buffer(buffer: ReplayBuffer, seed: int) -> None:
    """Make a buffer's samples follow a seed; call it before the first sample.

    Tianshou 1.2 seeds every buffer, and every part of a vector buffer, with 42. Its prioritized
    buffers sample from numpy's global generator instead, which the caller seeds.
    """
    parts = [buffer, *getattr(buffer, "buffers", [])]
    for part, sequence in zip(parts, np.random.SeedSequence(seed).spawn(len(parts)), strict=True):
        part._random_state = np.random.RandomState(np.random.MT19937(sequence))


def replay_nbytes(buffer: ReplayBuffer) -> int:
    """Count the bytes of a buffer: transitions, and the index arrays beside them.

    Tianshou's buffers allocate their storage with the first transition.
    """
    if hasattr(buffer, "nbytes"):  # a compact one
        return int(buffer.nbytes)
    parts = [buffer, *getattr(buffer, "buffers", [])]
    # The parts of a vector buffer are views into its storage: count that once.
    return _batch_nbytes(buffer._meta) + sum(_batch_nbytes(part._indices) for part in parts)


def predict_replay_nbytes(
    make_buffer: Callable[[int], ReplayBuffer], example: Batch, size: int
) -> int:
    """Predict the bytes of a full buffer from a small one of the same kind.

    :param make_buffer: builds the buffer for a number of transitions.
    :param example: one transition for each environment.
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


def chronological_indices(buffer: ReplayBuffer) -> NDArray[np.int64]:
    """All indices of a buffer, those of an environment together, its oldest first."""
    parts = getattr(buffer, "buffers", [buffer])
    rings = [np.roll(np.arange(len(part)), -part._insertion_idx) for part in parts]
    edges = buffer.subbuffer_edges[:-1]
    return np.concatenate([edge + ring for edge, ring in zip(edges, rings, strict=True)])


def raw_replay_state(buffer: ReplayBuffer) -> State:
    """Return everything that a vector buffer of Tianshou stores, and its generators' states."""
    fields = buffer._meta.items()
    return {
        "maxsize": buffer.maxsize,
        "fields": {name: value for name, value in fields if isinstance(value, np.ndarray)},
        "last_index": buffer.last_index,
        "lengths": buffer._lengths,
        "generator": generator_state(buffer._random_state),
        "parts": [
            {
                "last_index": part.last_index,
                "generator": generator_state(part._random_state),
                **{name: getattr(part, name) for name in _PART_FIELDS},
            }
            for part in buffer.buffers
        ],
    }


def load_raw_replay_state(buffer: ReplayBuffer, state: State) -> None:
    """Continue from a state of a buffer of the same size; the buffer takes over its arrays."""
    parts: list[Any] = list(buffer.buffers)
    if state["maxsize"] != buffer.maxsize or len(state["parts"]) != len(parts):
        raise ValueError(f"a buffer of {state['maxsize']} is not one of {buffer.maxsize}")
    if state["fields"]:
        buffer.set_batch(Batch(state["fields"]))  # checks the lengths, too
    buffer.last_index = state["last_index"]
    buffer._lengths = state["lengths"]
    set_generator_state(buffer._random_state, state["generator"])
    for part, saved in zip(parts, state["parts"], strict=True):
        part.last_index = saved["last_index"]
        set_generator_state(part._random_state, saved["generator"])
        for name in _PART_FIELDS:
            setattr(part, name, saved[name])


def close_episodes(buffer: ReplayBuffer) -> None:
    """End the unfinished episodes of a vector buffer: transitions to come belong to new ones.

    A compact buffer detects new episodes; in Tianshou's, the newest transitions become truncated.
    """
    for part in buffer.buffers:
        if hasattr(part, "clear_statistics"):  # of a compact buffer
            part.clear_statistics()
            continue
        if part._size:
            newest = part.last_index[0]
            if not part._meta.done[newest]:
                part._meta.truncated[newest] = part._meta.done[newest] = True
        part._ep_return, part._ep_len, part._ep_start_idx = 0.0, 0, part._insertion_idx
