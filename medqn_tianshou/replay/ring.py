"""Tianshou's own replay buffer, but faster for one environment."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.data import VectorReplayBuffer
from tianshou.data.types import RolloutBatchProtocol

Index = NDArray[np.int_]

_FIELDS = {"obs", "act", "rew", "terminated", "truncated", "done", "obs_next"}


class RingReplayBuffer(VectorReplayBuffer):
    """A VectorReplayBuffer with the same storage, the same samples and the same results.

    With one environment and transitions of plain arrays, it reads and writes the arrays of the
    storage directly, without batches. In all other cases, Tianshou's code runs.
    """

    def _compile(self) -> None:
        """Skip Tianshou's compilation: it takes seconds and 50 MB, for functions used rarely."""

    def add(
        self, batch: RolloutBatchProtocol, buffer_ids: Index | list[int] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Add a transition."""
        given: dict[str, Any] = batch.__dict__
        if not self.is_plain or not _fits(given, self._meta.__dict__):
            return super().add(batch, buffer_ids)
        transition = {name: values[0] for name, values in given.items()}
        result: Any = [np.array([value]) for value in self.append(transition)]
        return tuple(result)

    def takes(self, obs: NDArray[Any]) -> bool:
        """Whether :meth:`append` may add a transition with such observations, a batch of one."""
        fields = self._meta.__dict__
        stored = fields.get("obs")
        return (
            type(stored) is np.ndarray
            and self.is_plain
            and fields.keys() == _FIELDS
            and obs.shape == (1, *stored.shape[1:])
            and obs.dtype == stored.dtype != object
            and fields["rew"].ndim == 1
        )

    def append(self, transition: dict[str, Any]) -> tuple[int, float, int, int]:
        """Add a transition to a plain buffer that has some.

        :param transition: each field, of the shape that the buffer stores.
        :return: its index, and return, length and first index of its episode if that has ended.
        """
        part = self.buffers[0]
        own = vars(part)  # an assignment to an attribute of a buffer is slow
        index, size = own["_insertion_idx"], part.maxsize
        for name, array in self._meta.__dict__.items():
            array[index] = transition[name]
        part.last_index[0] = self.last_index[0] = index
        own["_insertion_idx"] = following = (index + 1) % size
        if own["_size"] < size:
            own["_size"] = self._lengths[0] = own["_size"] + 1
        own["_ep_return"] += float(transition["rew"])
        own["_ep_len"] += 1
        if not transition["done"]:
            return index, 0.0, 0, own["_ep_start_idx"]
        episode = (own["_ep_return"], own["_ep_len"], own["_ep_start_idx"])
        own.update(_ep_return=0.0, _ep_len=0, _ep_start_idx=following)
        return index, *episode

    @property
    def is_plain(self) -> bool:
        """Whether each transition has its own observation and successor, of one environment."""
        return self.buffer_num == self.stack_num == 1 and self._save_obs_next

    def sample_indices(self, batch_size: int | None) -> Index:
        """Sample as Tianshou does; with one environment there is none to choose."""
        part = self.buffers[0]
        if self.is_plain and batch_size is not None and part._size:
            if batch_size > 0:  # what choice() calls
                return np.asarray(part._random_state.randint(part._size, size=batch_size))
            if batch_size == 0:  # all, the oldest first
                if part._size < part.maxsize:
                    return np.arange(part._size)
                start = part._insertion_idx
                return _twice_around(part.maxsize)[start : start + part.maxsize].copy()
        return super().sample_indices(batch_size)

    def fetch(
        self, indices: Index, sampled: Sequence[Index] = ()
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Read transitions of a plain buffer.

        :param sampled: indices whose observations to read as well.
        :return: actions, rewards and both flags; observations, those at ``sampled``, successors.
        """
        stored: dict[str, Any] = self._meta.__dict__
        names = ("act", "rew", "terminated", "truncated")
        obs = stored["obs"]
        return (
            [stored[name][indices] for name in names],
            [*(obs[index] for index in (indices, *sampled)), stored["obs_next"][indices]],
        )


@lru_cache(maxsize=4)
def _twice_around(size: int) -> Index:
    """Return the indices of a full ring, twice: those from the oldest on are in one piece."""
    return np.tile(np.arange(size), 2)


def _fits(given: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Whether a batch is one transition of plain arrays as those in the storage are."""
    if given.keys() != stored.keys():
        return False
    if stored["rew"].ndim > 1:
        return False  # returns are numbers here
    if bool(given["done"][0]) != bool(given["terminated"][0] or given["truncated"][0]):
        return False  # Tianshou computes it
    for name, array in stored.items():
        value = given[name]
        if type(value) is not np.ndarray or value.shape != (1, *array.shape[1:]):
            return False
        if value.dtype != array.dtype and not np.can_cast(value.dtype, array.dtype, "same_kind"):
            return False
    return True
