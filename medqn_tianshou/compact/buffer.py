"""A drop-in for Tianshou's VectorReplayBuffer that takes a small part of the memory."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
from tianshou.data.types import RolloutBatchProtocol

from medqn_tianshou.compact.columns import TightColumn
from medqn_tianshou.compact.file import ReplayFileError, read_replay, write_replay
from medqn_tianshou.compact.part import Leaves, Part
from medqn_tianshou.compact.rows import make_rows
from medqn_tianshou.replay import seed_replay_buffer

Index = NDArray[np.int64]

FRAMES_PER_BLOCK = 24
"""Frames that are encoded together: more take less memory, fewer are quicker to read."""
_MOST_ROWS_PER_BLOCK = 8192
_ROW_OVERHEAD = 128
_RUN_NBYTES = 32
_SMALLEST_RING = 64
_RING_GROWTH = 1.25
_TERMINATED, _TRUNCATED = 1, 2
_FLAGS = {
    "terminated": np.array([False, True, False, True]),
    "truncated": np.array([False, False, True, True]),
    "done": np.array([False, True, True, True]),
}
_OBSERVATIONS = {"obs": 0, "obs_next": 1}
"""What a key adds to the row of a transition's observation."""
_FIELDS = ("act", "rew", "terminated", "truncated", "done")
_OPTIONAL = ("info", "policy")
_SEPARATOR = "\0"  # between the keys of nested Batches, which may hold any other character


class CompactVectorReplayBuffer(VectorReplayBuffer):
    """Keeps Tianshou's VectorReplayBuffer's contract, loses no bit, and takes a fraction of it.

    Frames of bytes are stored once, however large the stack, as changes against the frame before;
    boolean observations as bits; actions, rewards and flags in the tightest dtype that holds them.

    The successor of every transition is exact, also of the newest and of a truncated one, and is
    never stored twice. No stack mixes episodes or misses frames: a transition is forgotten with
    the first of its frames.

    Differs from Tianshou's in that ``info`` and ``policy`` are kept only on request, that draws
    follow a seed, and that an index of a forgotten transition is an error.

    :param total_size: the most transitions to hold; shared evenly by the environments.
    :param buffer_num: the number of environments.
    :param stack_num: frames in an observation that is read.
    :param ignore_obs_next: accepted for compatibility; successors never take memory of their own.
    :param save_only_last_obs: observations come stacked; keep the newest frame of each.
    :param sample_avail: draw only transitions with ``stack_num`` frames of their own episode.
    :param random_seed: seed of the draws; None takes one from numpy's global generator.
    :param max_bytes: the most bytes to hold, bookkeeping included; the oldest transitions go first.
    :param keep: which of ``"info"`` and ``"policy"`` to store.
    """

    buffers: list[Part]  # type: ignore[assignment]
    """The environments' parts."""

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        stack_num: int = 1,
        ignore_obs_next: bool = True,
        save_only_last_obs: bool = False,
        sample_avail: bool = False,
        random_seed: int | None = None,
        max_bytes: int | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        for name, value in (
            ("total_size", total_size),
            ("buffer_num", buffer_num),
            ("stack_num", stack_num),
        ):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if unknown := set(keep) - set(_OPTIONAL):
            raise ValueError(f"keep={unknown} can only name {' and '.join(_OPTIONAL)}")
        # Not the base class's: it would take 16 bytes per transition before the first one.
        self.buffer_num = buffer_num
        self.stack_num = stack_num
        self.options = {
            "stack_num": stack_num,
            "ignore_obs_next": ignore_obs_next,
            "save_only_last_obs": save_only_last_obs,
            "sample_avail": sample_avail,
        }
        self.max_bytes = max_bytes
        self.is_capped = False
        """Whether ``max_bytes``, and not the size, has made it forget transitions."""
        self.keep = tuple(keep)
        self._save_only_last_obs = save_only_last_obs
        self._sample_avail = sample_avail
        self._part_size = -(-total_size // buffer_num)
        self.maxsize = self._part_size * buffer_num
        self._offset = np.arange(buffer_num) * self._part_size
        self.buffers = [Part(self._part_size, stack_num) for _ in range(buffer_num)]
        seed = np.random.randint(2**31) if random_seed is None else random_seed
        seed_replay_buffer(self, seed)

    # -- what it holds -------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self.buffers))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} of {self.maxsize} transitions, "
            f"{self.buffer_num} environments, {self.nbytes} bytes)"
        )

    @property
    def nbytes(self) -> int:
        """Bytes held: observations, all other fields, and what it takes to find them."""
        return sum(part.nbytes for part in self.buffers)

    @property
    def subbuffer_edges(self) -> Index:
        """Where each environment's indices start, and the end of the last."""
        return np.arange(self.buffer_num + 1) * self._part_size

    @property
    def last_index(self) -> Index:  # type: ignore[override]
        """The index of the newest transition of each environment."""
        slots = [(part.next - 1) % part.ring if part.next else 0 for part in self.buffers]
        return np.asarray(self._offset + slots)

    def unfinished_index(self) -> Index:
        """Return the last index of each stretch of transitions that did not end an episode."""
        times = [
            [*part.broken, *([part.next - 1] if part.run_is_open and len(part) else [])]
            for part in self.buffers
        ]
        return np.concatenate(
            [
                self._index_of(part_id, np.array(values, np.int64))
                for part_id, values in enumerate(times)
            ]
        )

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget all transitions; return and length of the current episodes too, if not kept."""
        for part in self.buffers:
            part.clear()
            if not keep_statistics:
                part.clear_statistics()

    def __getattr__(self, key: str) -> Any:
        """Give a whole field, one value per index, as Tianshou's policies read ``buffer.done``."""
        known = key in self._reserved_keys and any(map(len, self.buffers))
        if not (known and (key in _OBSERVATIONS or self._stores(key))):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {key!r}")
        index = self._all_indices()

        def spread(held: NDArray[Any]) -> NDArray[Any]:
            whole = np.zeros((self.maxsize, *held.shape[1:]), held.dtype)
            whole[index] = held
            return whole

        return _map_arrays(self.get(index, key, stack_num=1), spread)

    # -- adding --------------------------------------------------------------------------------

    def add(
        self,
        batch: RolloutBatchProtocol,
        buffer_ids: NDArray[np.int_] | list[int] | None = None,
    ) -> tuple[Index, NDArray[Any], Index, Index]:
        """Add one transition for each of some environments.

        :param batch: ``obs``, ``act``, ``rew``, ``terminated``, ``truncated`` and ``obs_next``.
        :param buffer_ids: the environments; None is all.
        :return: for each, its index, and return, length and first index of the episode that ended
            with it; return and length are 0 where none did.
        """
        return self._add(batch, buffer_ids, self._save_only_last_obs)

    def _add(
        self,
        batch: RolloutBatchProtocol,
        buffer_ids: NDArray[np.int_] | list[int] | None,
        stacked: bool,
    ) -> tuple[Index, NDArray[Any], Index, Index]:
        keys = batch.get_keys()
        for key in ("obs", "act", "rew", "terminated", "truncated", "obs_next"):
            if key not in keys:
                raise ValueError(f"the batch has no {key!r}, which a transition needs")
        ids = range(self.buffer_num) if buffer_ids is None else buffer_ids
        stacks = dict(_leaves(batch.obs))
        successors = dict(_leaves(batch.obs_next))
        if not stacked:
            stacks = {name: value[:, None] for name, value in stacks.items()}
        else:
            successors = {name: value[:, -1] for name, value in successors.items()}
        fields: Leaves = dict(_leaves(batch.act, "act"))
        fields["rew"] = np.asarray(batch.rew).astype(float)
        fields["flags"] = (
            _TERMINATED * np.asarray(batch.terminated, np.bool_)
            + _TRUNCATED * np.asarray(batch.truncated, np.bool_)
        ).astype(np.uint8)
        for key in self.keep:
            if key in keys:
                fields |= _leaves(batch[key], key)
        if not self.buffers[0].stores:
            self._prepare(successors, fields)
        for name, store in self.buffers[0].stores.items():  # as in an array, the first dtype holds
            stacks[name] = stacks[name].astype(store.dtype, copy=False)
            successors[name] = successors[name].astype(store.dtype, copy=False)
        for name in fields.keys() - self._columns.keys():  # an info that was not there before
            for part in self.buffers:
                part.columns[name] = _make_column(fields[name], part.ring)
        results = [
            self._add_one(
                int(part_id),
                {name: value[i] for name, value in stacks.items()},
                {name: value[i] for name, value in successors.items()},
                {name: value[i] for name, value in fields.items()},
            )
            for i, part_id in enumerate(ids)
        ]
        columns = zip(*results, strict=True) if results else ([], [], [], [])
        index, returns, lengths, starts = map(np.array, columns)
        return index, returns, lengths, starts

    def _prepare(self, rows: Leaves, fields: Leaves) -> None:
        """Make room for the first transition, whose shapes and dtypes hold for all."""
        ring = min(self._part_size, _SMALLEST_RING)
        row_nbytes = sum(row.nbytes // len(row) + _ROW_OVERHEAD for row in rows.values())
        fixed = ring * sum(value.nbytes // len(value) + _RUN_NBYTES for value in fields.values())

        def least(block_len: int) -> int:
            # The newest transition and the next, in blocks that hold no more than a row of them.
            count = 3 * block_len + 2 * (self.stack_num + 1)
            return int(self.buffer_num * (fixed + count * row_nbytes))

        block_len = FRAMES_PER_BLOCK
        if all(row.dtype != np.uint8 for row in rows.values()):
            block_len = min(max(self._part_size // 16, block_len), _MOST_ROWS_PER_BLOCK)
        if self.max_bytes is not None:
            while block_len > 1 and least(block_len) > self.max_bytes:
                block_len //= 2
            if least(block_len) > self.max_bytes:
                raise ValueError(
                    f"max_bytes={self.max_bytes} cannot hold these observations; "
                    f"take at least {least(block_len)}"
                )
        for part in self.buffers:
            part.stores = {
                name: make_rows(row.shape[1:], row.dtype, block_len, self.stack_num)
                for name, row in rows.items()
            }
            part.columns = {name: _make_column(value, ring) for name, value in fields.items()}
            part.ring = ring

    def _add_one(
        self, part_id: int, stacks: Leaves, successor: Leaves, fields: dict[str, Any]
    ) -> tuple[int, Any, int, int]:
        part = self.buffers[part_id]
        done = bool(fields["flags"])
        if len(part) == part.ring < part.maxsize:
            self._grow_ring(part)
        while len(part) >= part.ring:
            part.forget_oldest()
        self._make_room(part.next_add_nbytes)
        part.add(stacks, successor, fields, done)
        self._make_room(0)  # a column may have become wider
        part.episode_return = part.episode_return + fields["rew"]
        part.episode_length += 1
        offset = part_id * self._part_size
        time = part.next - 1
        start = max(part.next - part.episode_length, 0)
        if start < part.first and len(part) < part.maxsize:
            start = part.first  # of its episode, the first that is held
        start = offset + start % part.ring
        index = offset + time % part.ring
        if not done:
            return index, np.zeros_like(part.episode_return), 0, start
        statistics = part.episode_return, part.episode_length
        part.clear_statistics()
        return index, *statistics, start

    def _grow_ring(self, part: Part) -> None:
        ring = min(part.maxsize, int(part.ring * _RING_GROWTH))
        new = sum(column.values.nbytes for column in part.columns.values()) * ring // part.ring
        # The old ring stays until all is moved.
        if self.max_bytes is None or self.nbytes + new <= self.max_bytes:
            part.resize_ring(ring)
        else:
            self.is_capped = True

    def _make_room(self, nbytes: int) -> None:
        """Forget the oldest of the environment that holds most, until so many bytes are free."""
        if self.max_bytes is None:
            return
        while self.nbytes + nbytes > self.max_bytes:
            if any(part.shrink_ring(_SMALLEST_RING) for part in self.buffers):
                continue
            if not any(part.forget_block() for part in sorted(self.buffers, key=len)[::-1]):
                return
            self.is_capped = True

    def update(self, buffer: ReplayBuffer) -> Index:
        """Add all transitions of another buffer, oldest first, and return their indices.

        :param buffer: one with as many environments.
        """
        edges = buffer.subbuffer_edges
        if len(edges) != self.buffer_num + 1:
            raise ValueError(
                f"a buffer of {len(edges) - 1} environments cannot be added to one of "
                f"{self.buffer_num}"
            )
        index = _chronological(buffer)
        part_ids = np.searchsorted(edges, index, side="right") - 1
        # What is read is stacked by the other buffer, or was when it was stored whole there.
        stacked = buffer.stack_num > 1 or self._save_only_last_obs > buffer._save_only_last_obs
        added = [
            self._add(buffer[[i]], [part_id], stacked)[0]
            for i, part_id in zip(index, part_ids, strict=True)
        ]
        return np.concatenate(added) if added else np.array([], int)

    # -- files ---------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything to a file, the state of the draws included, whole or not at all."""
        path = Path(path)
        aside = path.with_name(f".{path.name}.part")
        with aside.open("wb") as file:
            write_replay(self, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote; draws go on as they would have.

        :raises ReplayFileError: if the file is damaged.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                return cast(Self, read_replay(file, path.stat().st_size))
        except ReplayFileError as error:
            raise ReplayFileError(f"{path}: {error}") from None

    def save_hdf5(self, path: str, compression: str | None = None) -> None:
        """Not offered: what is stored is compressed already, and HDF5 would add nothing."""
        raise NotImplementedError("use save(path); it streams, and is checked when it is read")

    @classmethod
    def load_hdf5(cls, path: str, device: str | None = None) -> Self:
        """Not offered, see :meth:`save_hdf5`."""
        raise NotImplementedError("use load(path), for what save(path) wrote")

    # -- reading -------------------------------------------------------------------------------

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
        found = self._locate(index)
        if key in _OBSERVATIONS:
            return self._observations([(found, key)], stack_num)[0]
        if not self._stores(key):
            if default_value is not None:
                return default_value
            raise KeyError(key)
        return self._field(found, key, stack_num)

    def get_observations(
        self, requests: Sequence[tuple[int | list[int] | Index, str]], stack_num: int | None = None
    ) -> list[Any]:
        """Read observations, and nothing else; what lies close together is decoded once.

        :param requests: indices, and ``"obs"`` or ``"obs_next"``.
        :param stack_num: frames in a stack; None is the buffer's.
        :return: the observations for each request.
        """
        found = [(self._locate(index), key) for index, key in requests]
        return self._observations(found, self.stack_num if stack_num is None else stack_num)

    def __getitem__(self, index: Any) -> RolloutBatchProtocol:
        """Read transitions: ``buffer[index]`` by indices, ``buffer[:]`` all, oldest first."""
        if isinstance(index, slice):
            whole = index == slice(None)
            index = self.sample_indices(0) if whole else np.sort(self._all_indices())[index]
        elif np.asarray(index).dtype == np.bool_:
            index = np.flatnonzero(index)
        found = self._locate(index)
        batch = {key: self._field(found, key) for key in _FIELDS}
        for key in _OPTIONAL:
            stored = self._stores(key)
            batch[key] = self._field(found, key, self.stack_num) if stored else Batch()
        requests = [(found, key) for key in _OBSERVATIONS]
        batch["obs"], batch["obs_next"] = self._observations(requests, self.stack_num)
        return cast(RolloutBatchProtocol, Batch(batch))

    def prev(self, index: int | Index) -> Any:
        """Return the index before each, or itself where its episode, or what is held, begins."""
        return self._move(index, Part.before)

    def next(self, index: int | Index) -> Any:
        """Return the index after each, or itself where its episode, or what is held, ends."""
        return self._move(index, Part.after)

    def get_buffer_indices(self, start: int, stop: int) -> Index:
        """Return the indices from ``start`` to before ``stop``, which may lie beyond the edge."""
        part_id = start // self._part_size
        if (stop - 1) // self._part_size != part_id:
            raise ValueError(f"{start=} and {stop=} must be within the same subbuffer")
        slots = np.array([start, stop - 1]) - part_id * self._part_size
        part = self.buffers[part_id]
        first, last = part.times(slots)
        first = max(first, part.first)  # what of it is forgotten is left out
        if first > last:
            raise ValueError(f"{start=} is newer than {stop=}")
        return self._index_of(part_id, np.arange(first, last + 1))

    # -- drawing -------------------------------------------------------------------------------

    def sample_indices(self, batch_size: int | None) -> Index:
        """Draw indices with replacement; the same as Tianshou's draws from the same seed.

        :param batch_size: how many; 0 and None are all, oldest first, below 0 is none.
        """
        if batch_size is not None and batch_size < 0:
            return np.array([], int)
        if self._sample_avail and self.stack_num > 1:
            available = np.concatenate(
                [self._index_of(i, self._with_full_stack(p)) for i, p in enumerate(self.buffers)]
            )
            if batch_size == 0:
                return available
            size = len(available) if batch_size is None else batch_size
            return self._random_state.choice(available, size)
        if not batch_size:
            return self._all_indices()
        lengths = np.array([len(part) for part in self.buffers])
        if not lengths.any():
            raise ValueError("the replay buffer is empty; collect before the first update")
        chosen = self._random_state.choice(self.buffer_num, batch_size, p=lengths / lengths.sum())
        counts = np.bincount(chosen, minlength=self.buffer_num)
        return np.concatenate(
            [
                self._index_of_entry(part_id, part._random_state.choice(len(part), counts[part_id]))
                for part_id, part in enumerate(self.buffers)
                if counts[part_id]
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
        if len(part) == part.ring:  # all slots are taken: as Tianshou draws them
            return entries + part_id * self._part_size
        return self._index_of(part_id, part.first + entries)

    @staticmethod
    def _with_full_stack(part: Part) -> Index:
        times = oldest = np.arange(part.first, part.next)
        for _ in range(part.stack_num - 2):
            oldest = part.before(oldest)
        return times[part.before(oldest) != oldest] if len(times) else times

    # -- from indices to times and back --------------------------------------------------------

    @property
    def _columns(self) -> dict[str, TightColumn]:
        return self.buffers[0].columns

    def _stores(self, key: str) -> bool:
        return key in _FLAGS or any(_is_field(name, key) for name in self._columns)

    def _all_indices(self) -> Index:
        """All indices, those of an environment together, its oldest first."""
        return np.concatenate(
            [
                self._index_of(part_id, np.arange(part.first, part.next))
                for part_id, part in enumerate(self.buffers)
            ]
        )

    def _index_of(self, part_id: int, times: Index) -> Index:
        return np.asarray(part_id * self._part_size + times % max(self.buffers[part_id].ring, 1))

    def _locate(self, index: Any) -> "_Found":
        """Find transitions by their indices."""
        shape = np.shape(index)
        flat = np.asarray(index, np.int64).reshape(-1) % self.maxsize
        if self.buffer_num == 1:
            owners: list[tuple[int, Any]] = [(0, slice(None))] if len(flat) else []
        else:
            part_ids = flat // self._part_size
            owners = [(int(i), np.flatnonzero(part_ids == i)) for i in np.unique(part_ids)]
        parts = []
        for part_id, own in owners:
            part = self.buffers[part_id]
            slots = flat[own] - part_id * self._part_size
            times = part.times(slots)
            if times.min() < part.first:
                lost = slots[times < part.first][0] + part_id * self._part_size
                raise IndexError(f"index {lost} holds no transition")
            parts.append((part_id, own, times))
        return _Found(shape, len(flat), parts)

    def _field(self, found: "_Found", key: str, stack_num: int = 1) -> Any:
        """Read a field that is not an observation."""
        values = [self._gather(found, key)]
        for _ in range(stack_num - 1):
            found = found.moved(self.buffers, Part.before)
            values.insert(0, self._gather(found, key))
        if stack_num == 1:
            return _reshape(values[0], found.shape)
        stacked = Batch.stack(values, 1) if isinstance(values[0], Batch) else np.stack(values, 1)
        return _reshape(stacked, found.shape)

    def _gather(self, found: "_Found", key: str) -> Any:
        stored = "flags" if key in _FLAGS else key
        leaves: Leaves = {}
        for name, column in self._columns.items():
            if not _is_field(name, stored):
                continue
            out = np.empty((found.size, *column.values.shape[1:]), column.dtype)
            for part_id, own, times in found.parts:
                part = self.buffers[part_id]
                out[own] = part.columns[name].values[times % part.ring]
            leaves[name.removeprefix(stored).removeprefix(_SEPARATOR)] = out
        return _FLAGS[key][leaves[""]] if key in _FLAGS else _tree(leaves)

    def _observations(self, requests: list[tuple["_Found", str]], stack_num: int) -> list[Any]:
        """Read stacked observations; each block is decoded once for all requests."""
        stops = np.cumsum([found.size * stack_num for found, _ in requests])
        wanted: dict[int, list[tuple[Index, Index]]] = {}
        for (found, key), stop in zip(requests, stops, strict=True):
            places = np.arange(stop - found.size * stack_num, stop).reshape(-1, stack_num)
            for part_id, own, times in found.parts:
                rows = self.buffers[part_id].rows(times, _OBSERVATIONS[key], stack_num)
                wanted.setdefault(part_id, []).append((rows.ravel(), places[own].ravel()))
        leaves: Leaves = {}
        for name, store in self.buffers[0].stores.items():
            leaves[name] = out = np.empty((int(stops[-1]), store.cells), store.dtype)
            for part_id, pairs in wanted.items():
                numbers, places = map(np.concatenate, zip(*pairs, strict=True))
                self.buffers[part_id].stores[name].read(numbers, places, out)
        stack_shape = (stack_num,) if stack_num > 1 else ()
        return [
            _tree(
                {
                    name: out[stop - found.size * stack_num : stop].reshape(
                        (*found.shape, *stack_shape, *self.buffers[0].stores[name].shape)
                    )[()]
                    for name, out in leaves.items()
                }
            )
            for (found, _), stop in zip(requests, stops, strict=True)
        ]

    def _move(self, index: Any, step: "_Step") -> Any:
        found = self._locate(index).moved(self.buffers, step)
        result = np.empty(found.size, np.int64)
        for part_id, own, times in found.parts:
            result[own] = self._index_of(part_id, times)
        return result.reshape(found.shape)[()]


_Step = Callable[[Part, Index], Index]


class _Found(NamedTuple):
    """Where some transitions are: per environment, their places among the indices, their times."""

    shape: tuple[int, ...]
    size: int
    parts: list[tuple[int, Any, Index]]

    def moved(self, buffers: list[Part], step: _Step) -> "_Found":
        """The same for neighbours in time."""
        parts = [
            (part_id, own, step(buffers[part_id], times)) for part_id, own, times in self.parts
        ]
        return self._replace(parts=parts)


def _chronological(buffer: ReplayBuffer) -> Index:
    """All indices of a buffer, those of an environment together, its oldest first."""
    if isinstance(buffer, CompactVectorReplayBuffer):
        return buffer._all_indices()
    parts = getattr(buffer, "buffers", [buffer])
    rings = [np.roll(np.arange(len(part)), -part._insertion_idx) for part in parts]
    edges = buffer.subbuffer_edges[:-1]
    return np.concatenate([edge + ring for edge, ring in zip(edges, rings, strict=True)])


def _make_column(values: NDArray[Any], ring: int) -> TightColumn:
    return TightColumn(values.shape[1:], values.dtype, ring)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    """Name the arrays in a value: one, or those of a Batch by their paths."""
    if isinstance(value, np.ndarray) or not isinstance(value, Batch):
        yield name, np.asarray(value)
    else:
        for key in sorted(value.get_keys()):
            yield from _leaves(value[key], f"{name}{_SEPARATOR}{key}" if name else key)


def _tree(leaves: Leaves) -> Any:
    """Undo :func:`_leaves`."""
    if set(leaves) == {""}:
        return leaves[""]
    tree = Batch()
    for name, value in leaves.items():
        *path, last = name.split(_SEPARATOR)
        node = tree
        for key in path:
            if key not in node.get_keys():
                node[key] = Batch()
            node = node[key]
        node[last] = value
    return tree


def _is_field(name: str, key: str) -> bool:
    return name == key or name.startswith(key + _SEPARATOR)


def _map_arrays(value: Any, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        return change(value)
    return Batch({key: _map_arrays(value[key], change) for key in value.get_keys()})


def _reshape(value: Any, shape: tuple[int, ...]) -> Any:
    """Give values the shape of the indices they were asked for by."""
    return _map_arrays(value, lambda array: array.reshape((*shape, *array.shape[1:]))[()])
