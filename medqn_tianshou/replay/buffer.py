"""A drop-in replacement for Tianshou's VectorReplayBuffer that needs a fraction of its memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray
from tianshou.data import ReplayBuffer
from tianshou.data.types import RolloutBatchProtocol

from medqn_tianshou.files.atomic import atomic_write
from medqn_tianshou.files.generators import generator_state, set_generator_state
from medqn_tianshou.files.schema import MOST
from medqn_tianshou.replay.file import (
    FORMAT,
    MOST_ENVIRONMENTS,
    MOST_STACKED,
    ReplayFileError,
    read_replay,
    write_replay,
)
from medqn_tianshou.replay.part import Part
from medqn_tianshou.replay.readable import OPTIONAL, ReadableReplay
from medqn_tianshou.replay.reading import Index, Reader
from medqn_tianshou.replay.storage import Added, Storage
from medqn_tianshou.replay.tianshou_buffers import chronological_indices, seed_replay_buffer


class CompactVectorReplayBuffer(ReadableReplay):
    """Behaves as Tianshou's VectorReplayBuffer, bit for bit, in a fraction of its memory.

    Each uint8 frame is stored once, whatever the stack size, as differences from the previous
    frame; boolean observations as bits; actions, rewards and flags in the smallest exact dtype.

    The successor of every transition is exact, even of the newest and of truncated ones, and is
    never stored twice. No stack mixes episodes or lacks frames: a transition is evicted with the
    first of its frames.

    It differs from Tianshou's buffer in three ways: it stores ``info`` and ``policy`` only on
    request, samples follow a seed, and the index of an evicted transition is an error.

    :param total_size: the maximum number of transitions, shared evenly by the environments.
    :param buffer_num: the number of environments.
    :param stack_num: frames in an observation that is read.
    :param ignore_obs_next: accepted for compatibility; successors never take memory of their own.
    :param save_only_last_obs: observations arrive stacked; store the newest frame of each.
    :param sample_avail: sample only transitions with ``stack_num`` frames of their own episode.
    :param random_seed: seed of the samples; None takes one from numpy's global generator.
    :param max_bytes: the maximum number of bytes, bookkeeping included; the buffer evicts its
        oldest transitions first.
    :param keep: which of ``"info"`` and ``"policy"`` to store.
    """

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
        for name, value, most in (
            ("total_size", total_size, MOST),
            ("buffer_num", buffer_num, MOST_ENVIRONMENTS),
            ("stack_num", stack_num, MOST_STACKED),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"{name}={value} must be at least 1 and at most {most}")
        if unknown := set(keep) - set(OPTIONAL):
            raise ValueError(f"keep={unknown} can only name {' and '.join(OPTIONAL)}")
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
        self._use([Part(self._part_size, stack_num) for _ in range(buffer_num)], max_bytes)
        seed = np.random.randint(2**31) if random_seed is None else random_seed
        seed_replay_buffer(self, seed)

    def _use(self, parts: list[Part], max_bytes: int | None) -> None:
        self.buffers = parts
        self._storage = Storage(parts, max_bytes)
        self._reader = Reader(parts)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} of {self.maxsize} transitions, "
            f"{self.buffer_num} environments, {self.nbytes} bytes)"
        )

    @property
    def nbytes(self) -> int:
        """Bytes stored: observations, all other fields, and the bookkeeping."""
        return self._storage.nbytes

    @property
    def max_bytes(self) -> int | None:
        """The maximum number of bytes."""
        return self._storage.max_bytes

    def lower_max_bytes(self, max_bytes: int) -> None:
        """Store fewer bytes from now on: evict at once, but never the newest transitions."""
        if self.max_bytes is None or max_bytes < self.max_bytes:
            self._storage.max_bytes = max_bytes
            self._storage.make_room(0)

    @property
    def is_capped(self) -> bool:
        """Whether ``max_bytes``, rather than the size, has evicted transitions."""
        return self._storage.is_capped

    def reset(self, keep_statistics: bool = False) -> None:
        """Remove all transitions; reset return and length of the current episodes unless kept."""
        for part in self.buffers:
            part.clear()
            if not keep_statistics:
                part.clear_statistics()

    def add(
        self,
        batch: RolloutBatchProtocol,
        buffer_ids: NDArray[np.int_] | list[int] | None = None,
    ) -> Added:
        """Add one transition for each of some environments.

        :param batch: ``obs``, ``act``, ``rew``, ``terminated``, ``truncated`` and ``obs_next``.
        :param buffer_ids: the environments; None is all.
        :return: for each, its index, and return, length and first index of the episode that ended
            with it; return and length are 0 where none did.
        """
        return self._add(batch, buffer_ids, self._save_only_last_obs)

    def _add(self, batch: RolloutBatchProtocol, buffer_ids: Any, stacked: bool) -> Added:
        ids = range(self.buffer_num) if buffer_ids is None else np.asarray(buffer_ids).tolist()
        return self._storage.add(batch, ids, stacked=stacked, keep=self.keep)

    def update(self, buffer: ReplayBuffer) -> Index:
        """Add all transitions of another buffer with as many environments, oldest first.

        :return: their indices here.
        """
        edges = buffer.subbuffer_edges
        if len(edges) != self.buffer_num + 1:
            raise ValueError(
                f"a buffer of {len(edges) - 1} environments cannot be added to one of "
                f"{self.buffer_num}"
            )
        compact = isinstance(buffer, CompactVectorReplayBuffer)
        index = buffer._reader.all_indices() if compact else chronological_indices(buffer)
        part_ids = np.searchsorted(edges, index, side="right") - 1
        # What is read is stacked by the other buffer, or was when it was stored whole there.
        stacked = buffer.stack_num > 1 or self._save_only_last_obs > buffer._save_only_last_obs
        added = [
            self._add(buffer[[i]], [part_id], stacked)[0]
            for i, part_id in zip(index, part_ids, strict=True)
        ]
        return np.concatenate(added) if added else np.array([], int)

    def save(self, path: str | Path) -> None:
        """Write everything to a file atomically, generator states included."""
        with atomic_write(Path(path)) as file:
            self.write_to(file)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote; samples continue as they would have.

        :raises ReplayFileError: if the file is damaged.
        """
        try:
            with Path(path).open("rb") as file:
                return cls.read_from(file)
        except ReplayFileError as error:
            raise ReplayFileError(f"{path}: {error}") from None

    def write_to(self, file: BinaryIO) -> None:
        """Write everything at the position of an open file."""
        options = {
            "total_size": self.maxsize,
            "buffer_num": self.buffer_num,
            **self.options,
            "max_bytes": self.max_bytes,
            "keep": self.keep,
        }
        write_replay(file, options, generator_state(self._random_state), self.buffers)

    @classmethod
    def read_from(cls, file: BinaryIO, **options: Any) -> Self:
        """Read what :meth:`write_to` wrote, from the position of an open file to its end.

        :param options: arguments of a subclass that the file does not have.
        :raises ReplayFileError: if the file is damaged.
        """
        saved, generator, parts = read_replay(file)
        with FORMAT.checking():
            buffer = cls(**saved, **options, random_seed=0)
            buffer._use(parts, saved["max_bytes"])
            set_generator_state(buffer._random_state, generator)
        return buffer

    def save_hdf5(self, path: str, compression: str | None = None) -> None:
        """Not supported: the stored bytes are already compressed, so HDF5 would add nothing."""
        raise NotImplementedError("use save(path); it streams, and is checked when it is read")

    @classmethod
    def load_hdf5(cls, path: str, device: str | None = None) -> Self:
        """Not supported, see :meth:`save_hdf5`."""
        raise NotImplementedError("use load(path), for what save(path) wrote")
