"""A drop-in for Tianshou's VectorReplayBuffer that takes a small part of the memory."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
from tianshou.data.types import RolloutBatchProtocol

from medqn_tianshou.replay.file import ReplayFileError, read_replay, write_replay
from medqn_tianshou.replay.part import FLAGS, TERMINATED, TRUNCATED, Part
from medqn_tianshou.replay.reading import OBSERVATIONS, Found, Index, Reader
from medqn_tianshou.replay.storage import Storage
from medqn_tianshou.replay.tianshou_buffers import seed_replay_buffer
from medqn_tianshou.replay.trees import leaves, map_arrays

_REQUIRED = {"obs", "act", "rew", "terminated", "truncated", "obs_next"}
_FIELDS = ("act", "rew", *FLAGS)
_OPTIONAL = ("info", "policy")


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
        self.keep = tuple(keep)
        self._save_only_last_obs = save_only_last_obs
        self._sample_avail = sample_avail
        self._part_size = -(-total_size // buffer_num)
        self.maxsize = self._part_size * buffer_num
        self._offset = np.arange(buffer_num) * self._part_size
        self.buffers = [Part(self._part_size, stack_num) for _ in range(buffer_num)]
        self._storage = Storage(self.buffers, max_bytes)
        self._reader = Reader(self.buffers)
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
        return self._storage.nbytes

    @property
    def max_bytes(self) -> int | None:
        """The most bytes to hold."""
        return self._storage.max_bytes

    def lower_max_bytes(self, max_bytes: int) -> None:
        """Hold less from now on; the oldest transitions go at once.

        :param max_bytes: the most bytes to hold; the newest transitions stay in any case.
        """
        if self.max_bytes is None or max_bytes < self.max_bytes:
            self._storage.max_bytes = max_bytes
            self._storage.make_room(0)

    @property
    def is_capped(self) -> bool:
        """Whether ``max_bytes``, and not the size, has made it forget transitions."""
        return self._storage.is_capped

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
        return np.concatenate(
            [self._reader.indices(i, part.unfinished()) for i, part in enumerate(self.buffers)]
        )

    def reset(self, keep_statistics: bool = False) -> None:
        """Forget all transitions; return and length of the current episodes too, if not kept."""
        for part in self.buffers:
            part.clear()
            if not keep_statistics:
                part.clear_statistics()

    def __getattr__(self, key: str) -> Any:
        """Give a whole field, one value per index, as Tianshou's policies read ``buffer.done``."""
        held = key in self._reserved_keys and len(self) > 0
        if not held or not (key in OBSERVATIONS or self._reader.has_field(key)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {key!r}")
        index = self._reader.all_indices()

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            whole = np.zeros((self.maxsize, *values.shape[1:]), values.dtype)
            whole[index] = values
            return whole

        return map_arrays(self.get(index, key, stack_num=1), spread)

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
        keys = batch.__dict__.keys()
        if not keys >= _REQUIRED:
            missing = sorted(_REQUIRED - keys)
            raise ValueError(f"the batch has no {missing}, which a transition needs")
        ids = range(self.buffer_num) if buffer_ids is None else np.asarray(buffer_ids).tolist()
        stacks = leaves(batch.obs)
        successors = leaves(batch.obs_next)
        if stacked:
            successors = {name: value[:, -1] for name, value in successors.items()}
        else:
            stacks = {name: value[:, None] for name, value in stacks.items()}
        fields = leaves(batch.act, "act")
        fields["rew"] = np.asarray(batch.rew, float)
        for key in self.keep:
            if key in keys:
                fields |= leaves(batch[key], key)
        self._storage.prepare(successors, fields)
        for name, store in self.buffers[0].stores.items():
            if stacks[name].dtype != store.dtype:  # as in an array, the first dtype holds
                stacks[name] = stacks[name].astype(store.dtype)
                successors[name] = successors[name].astype(store.dtype)
        # Python's own numbers are quicker to handle one by one than numpy's.
        values = {name: v.tolist() if v.ndim == 1 else v for name, v in fields.items()}
        values["flags"] = [
            TERMINATED * bool(terminated) + TRUNCATED * bool(truncated)
            for terminated, truncated in zip(
                np.asarray(batch.terminated).tolist(),
                np.asarray(batch.truncated).tolist(),
                strict=True,
            )
        ]
        results = []
        for i, (part_id, flags) in enumerate(zip(ids, values["flags"], strict=True)):
            part = self.buffers[part_id]
            self._storage.add(
                part,
                {name: value[i] for name, value in stacks.items()},
                {name: value[i] for name, value in successors.items()},
                {name: value[i] for name, value in values.items()},
            )
            returned, length, start = part.count_step(values["rew"][i], flags != 0)
            offset = part_id * self._part_size
            index, start = offset + (part.next - 1) % part.ring, offset + start % part.ring
            results.append((index, returned, length, start))
        columns = zip(*results, strict=True) if results else ([], [], [], [])
        indices, returns, lengths, starts = map(np.array, columns)
        return indices, returns, lengths, starts

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
        """Read what an n-step update needs, and find each transition but once.

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

    def get_observations(
        self, requests: Sequence[tuple[int | list[int] | Index, str]], stack_num: int | None = None
    ) -> list[Any]:
        """Read observations, and nothing else; what lies close together is decoded once.

        :param requests: indices, and ``"obs"`` or ``"obs_next"``.
        :param stack_num: frames in a stack; None is the buffer's.
        :return: the observations for each request.
        """
        found = [(self._reader.locate(index), key) for index, key in requests]
        return self._reader.observations(found, self.stack_num if stack_num is None else stack_num)

    def __getitem__(self, index: Any) -> RolloutBatchProtocol:
        """Read transitions: ``buffer[index]`` by indices, ``buffer[:]`` all, oldest first."""
        if isinstance(index, slice):
            whole = index == slice(None)
            index = self.sample_indices(0) if whole else np.sort(self._reader.all_indices())[index]
        elif np.asarray(index).dtype == np.bool_:
            index = np.flatnonzero(index)
        reader = self._reader
        found = reader.locate(index)
        batch = {key: reader.field(found, key) for key in _FIELDS}
        for key in _OPTIONAL:
            stored = reader.has_field(key)
            batch[key] = reader.field(found, key, self.stack_num) if stored else Batch()
        requests = [(found, key) for key in OBSERVATIONS]
        batch["obs"], batch["obs_next"] = reader.observations(requests, self.stack_num)
        return cast(RolloutBatchProtocol, Batch(batch))

    def prev(self, index: int | Index) -> Any:
        """Return the index before each, or itself where its episode, or what is held, begins."""
        return self._reader.neighbours(index, Part.before)

    def next(self, index: int | Index) -> Any:
        """Return the index after each, or itself where its episode, or what is held, ends."""
        return self._reader.neighbours(index, Part.after)

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
        return self._reader.indices(part_id, np.arange(first, last + 1))

    # -- drawing -------------------------------------------------------------------------------

    def sample_indices(self, batch_size: int | None) -> Index:
        """Draw indices with replacement; the same as Tianshou's draws from the same seed.

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
        if self.buffer_num == 1:
            self._random_state.random_sample(batch_size)  # what the choice below would draw
            counts = [batch_size]
        else:
            share = lengths / lengths.sum()
            chosen = self._random_state.choice(self.buffer_num, batch_size, p=share)
            counts = np.bincount(chosen, minlength=self.buffer_num).tolist()
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
        return self._reader.indices(part_id, part.first + entries)


def _chronological(buffer: ReplayBuffer) -> Index:
    """All indices of a buffer, those of an environment together, its oldest first."""
    if isinstance(buffer, CompactVectorReplayBuffer):
        return buffer._reader.all_indices()
    parts = getattr(buffer, "buffers", [buffer])
    rings = [np.roll(np.arange(len(part)), -part._insertion_idx) for part in parts]
    edges = buffer.subbuffer_edges[:-1]
    return np.concatenate([edge + ring for edge, ring in zip(edges, rings, strict=True)])
