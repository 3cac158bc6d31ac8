"""The reading half of the compact buffer: transitions by their indices, and which to sample."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.data.types import RolloutBatchProtocol

from medqn_tianshou.replay.part import FLAGS, Part
from medqn_tianshou.replay.reading import OBSERVATIONS, Found, Index, Reader
from medqn_tianshou.replay.trees import leaves, map_arrays

OPTIONAL = ("info", "policy")
_FIELDS = ("act", "rew", *FLAGS)


class ReadableReplay(VectorReplayBuffer):
    """Reads and samples what :class:`CompactVectorReplayBuffer` stores."""

    buffers: list[Part]  # type: ignore[assignment]
    """The parts, one for each environment."""
    _reader: Reader
    _part_size: int

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    @property
    def subbuffer_edges(self) -> Index:
        """Where the indices of each environment start, and the end of the last."""
        return np.arange(self.buffer_num + 1) * self._part_size

    @property
    def last_index(self) -> Index:  # type: ignore[override]
        """The index of the newest transition of each environment."""
        slots = [(part.next - 1) % part.ring if part.next else 0 for part in self.buffers]
        return np.asarray(np.arange(self.buffer_num) * self._part_size + slots)

    def unfinished_index(self) -> Index:
        """Return the last index of each run of transitions that did not end an episode."""
        return np.concatenate(
            [self._reader.indices(i, part.unfinished()) for i, part in enumerate(self.buffers)]
        )

    def get(
        self,
        index: int | list[int] | Index,
        key: str,
        default_value: Any = None,
        stack_num: int | None = None,
    ) -> Any:
        """Read one field of some transitions, stacked.

        :param index: their indices, in any shape.
        :param key: the field; ``"obs"`` and ``"obs_next"`` read nothing else.
        :param default_value: what to return if the field is not stored.
        :param stack_num: values in a stack; None is the buffer's.
        """
        stack_num = self.stack_num if stack_num is None else stack_num
        found = self._reader.locate(index)
        if key in OBSERVATIONS:
            return self._reader.observations([(found, key)], stack_num)[0]
        if self._reader.has_field(key):
            return self._reader.field(found, key, stack_num)
        if default_value is None:
            raise KeyError(key)
        return default_value

    def fetch(
        self, index: Index, n_step: int, states: Sequence[Index] = ()
    ) -> tuple[Index, list[Any], list[Any]]:
        """Read the data of an n-step update, locating each transition only once.

        :param index: the transitions, shape (count,).
        :param n_step: how many steps, that of the transition itself included.
        :param states: indices of more observations to read.
        :return: the indices of the steps (n_step, count), their act, rew, terminated and
            truncated likewise, and the observations: of the transitions, the states, and the
            successors of the last steps.
        """
        reader = self._reader
        steps = [reader.locate(index)]
        for _ in range(n_step - 1):
            steps.append(reader.moved(steps[-1], Part.after))
        every = Found.joined(steps)
        fields = [reader.field(every, key) for key in ("act", "rew", "terminated", "truncated")]
        requests = [(steps[0], "obs"), *((reader.locate(some), "obs") for some in states)]
        observations = reader.observations([*requests, (steps[-1], "obs_next")], self.stack_num)
        return reader.index_of(every), fields, observations

    def hasnull(self) -> bool:
        """Whether a value is missing. Transitions that were checked before are not read again.

        Tianshou 2 asks after every collect; its own buffers read everything each time.
        """
        reader = self._reader
        new = [
            reader.indices(i, np.arange(max(part.checked, part.first), part.next))
            for i, part in enumerate(self.buffers)
        ]
        found = reader.locate(np.concatenate(new))
        values = [reader.field(found, "rew")] if reader.has_field("rew") else []
        stores = (store for part in self.buffers for store in part.stores.values())
        if any(np.issubdtype(store.dtype, np.inexact) for store in stores):
            values += reader.observations([(found, "obs"), (found, "obs_next")], 1)
        arrays = [array for value in values for array in leaves(value).values()]
        if any(np.isnan(array).any() for array in arrays if array.dtype.kind in "fc"):
            return True
        for part in self.buffers:
            part.checked = part.next
        return False

    def get_observations(
        self, requests: Sequence[tuple[int | list[int] | Index, str]], stack_num: int | None = None
    ) -> list[Any]:
        """Read only observations; a block that several requests need is decoded once.

        :param requests: indices, and ``"obs"`` or ``"obs_next"``.
        :param stack_num: frames in a stack; None is the buffer's.
        :return: the observations for each request.
        """
        found = [(self._reader.locate(index), key) for index, key in requests]
        return self._reader.observations(found, self.stack_num if stack_num is None else stack_num)

    def __getitem__(self, index: Any) -> RolloutBatchProtocol:
        """Read transitions: ``buffer[index]`` by indices, ``buffer[:]`` all, oldest first."""
        reader = self._reader
        found = reader.locate(self._chosen(index))
        batch = {key: reader.field(found, key) for key in _FIELDS}
        for key in OPTIONAL:
            stored = reader.has_field(key)
            batch[key] = reader.field(found, key, self.stack_num) if stored else Batch()
        requests = [(found, key) for key in OBSERVATIONS]
        batch["obs"], batch["obs_next"] = reader.observations(requests, self.stack_num)
        return cast(RolloutBatchProtocol, Batch(batch))

    def _chosen(self, index: Any) -> Any:
        """Return the indices that a slice or a mask chooses; leave others as they are."""
        if isinstance(index, slice):
            whole = index == slice(None)
            return self.sample_indices(0) if whole else np.sort(self._reader.all_indices())[index]
        if np.asarray(index).dtype == np.bool_:
            if np.shape(index) != (self.maxsize,):
                raise IndexError(f"a mask of shape {np.shape(index)} is not one of {self.maxsize}")
            return np.flatnonzero(index)
        return index

    def prev(self, index: int | Index) -> Any:
        """Return the previous index of each, or itself at the start of its run or of the buffer."""
        return self._reader.neighbours(index, Part.before)

    def next(self, index: int | Index) -> Any:
        """Return the next index of each, or itself at the end of its run."""
        return self._reader.neighbours(index, Part.after)

    def get_buffer_indices(self, start: int, stop: int) -> Index:
        """Return the indices from ``start`` to before ``stop``, which may lie beyond the edge."""
        part_id = start // self._part_size
        if (stop - 1) // self._part_size != part_id:
            raise ValueError(f"{start=} and {stop=} must be within the same subbuffer")
        slots = np.array([start, stop - 1]) - part_id * self._part_size
        part = self.buffers[part_id]
        first, last = part.times(slots)
        first = max(first, part.first)  # without evicted transitions
        if first > last:
            raise ValueError(f"{start=} is newer than {stop=}")
        return self._reader.indices(part_id, np.arange(first, last + 1))

    def sample_indices(self, batch_size: int | None) -> Index:
        """Sample indices with replacement, the same as Tianshou's buffer for the same seed.

        :param batch_size: how many; 0 and None are all, oldest first, below 0 is none.
        """
        if batch_size is not None and batch_size < 0:
            return np.array([], int)
        if self._sample_avail and self.stack_num > 1:
            available = np.concatenate(
                [self._reader.indices(i, p.with_full_stack()) for i, p in enumerate(self.buffers)]
            )
            if batch_size == 0:
                return available
            size = len(available) if batch_size is None else batch_size
            return self._random_state.choice(available, size)
        if not batch_size:
            return self._reader.all_indices()
        lengths = np.array([len(part) for part in self.buffers])
        if not lengths.any():
            raise ValueError("the replay buffer is empty; collect before the first update")
        counts = [batch_size]
        if self.buffer_num > 1:
            share = lengths / lengths.sum()
            chosen = self._random_state.choice(self.buffer_num, batch_size, p=share)
            counts = np.bincount(chosen, minlength=self.buffer_num).tolist()
        return np.concatenate(
            [
                self._index_of_entry(
                    part_id,
                    part._random_state.randint(len(part), size=count),  # what choice() calls
                )
                for part_id, (part, count) in enumerate(zip(self.buffers, counts, strict=True))
                if count
            ]
        )

    def index_of_entries(self, entries: Index) -> Index:
        """Turn numbers below ``len(buffer)`` into the indices of as many transitions."""
        stops = np.cumsum([len(part) for part in self.buffers])
        part_ids = np.searchsorted(stops, entries, side="right")
        result = np.empty_like(entries)
        for part_id in np.unique(part_ids):
            own = part_ids == part_id
            before = stops[part_id] - len(self.buffers[part_id])
            result[own] = self._index_of_entry(int(part_id), entries[own] - before)
        return result

    def _index_of_entry(self, part_id: int, entries: Index) -> Index:
        part = self.buffers[part_id]
        if len(part) == part.ring:  # all slots are taken: the order of Tianshou's buffer
            return entries + part_id * self._part_size
        return self._reader.indices(part_id, part.first + entries)

    def __getattr__(self, key: str) -> Any:
        """Return a whole field, one value per index: Tianshou's policies read ``buffer.done``."""
        stored = key in self._reserved_keys and len(self) > 0
        if not stored or not (key in OBSERVATIONS or self._reader.has_field(key)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {key!r}")
        index = self._reader.all_indices()

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            whole = np.zeros((self.maxsize, *values.shape[1:]), values.dtype)
            whole[index] = values
            return whole

        return map_arrays(self.get(index, key, stack_num=1), spread)
