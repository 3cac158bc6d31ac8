"""The compact buffer with priorities, in place of Tianshou's PrioritizedVectorReplayBuffer."""

from math import inf, isfinite
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import (
    PrioritizedReplayBuffer,
    PrioritizedVectorReplayBuffer,
    ReplayBuffer,
    SegmentTree,
    to_numpy,
)
from tianshou.data.types import PrioBatchProtocol, RolloutBatchProtocol

from medqn_tianshou.files.container import Container, Format, write_container
from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
from medqn_tianshou.replay.file import ReplayFileError
from medqn_tianshou.replay.part import Part
from medqn_tianshou.replay.reading import Index
from medqn_tianshou.replay.storage import Added

FORMAT = Format(name="prio", version=1, noun="prioritized replay buffer", error=ReplayFileError)
_NUMBERS = ("_alpha", "_beta", "_max_prio", "_min_prio")


class CompactPrioritizedVectorReplayBuffer(
    CompactVectorReplayBuffer, PrioritizedVectorReplayBuffer
):
    """Behaves as Tianshou's PrioritizedVectorReplayBuffer, bit for bit, in less memory.

    Transitions are stored as in :class:`CompactVectorReplayBuffer`. The priorities are Tianshou's,
    16 to 32 bytes for each transition that the buffer can store; they count for ``max_bytes``.

    It differs from Tianshou's buffer as :class:`CompactVectorReplayBuffer` does, and fixes two
    errors of Tianshou's: :meth:`set_beta` and ``weight_norm`` take effect, and transitions from
    before a :meth:`reset` are not sampled.

    :param alpha: the exponent of priorities.
    :param beta: the exponent of the weights that correct for the priorities.
    :param weight_norm: divide the weights of a batch by their maximum.
    :param random_seed: seed of the samples; with None they are sampled, as Tianshou's are, by
        numpy's global generator.
    :param options: the other arguments of :class:`CompactVectorReplayBuffer`.
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        random_seed: int | None = None,
        **options: Any,
    ) -> None:
        if not (isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha={alpha} must be a number above 0")
        if not (isfinite(beta) and beta >= 0):
            raise ValueError(f"beta={beta} must be a number of at least 0")
        self._priorities = PrioritizedReplayBuffer(1, alpha, beta, weight_norm)
        super().__init__(
            total_size, buffer_num, random_seed=0 if random_seed is None else random_seed, **options
        )
        if random_seed is None:
            self._random_state = np.random.mtrand._rand

    def _use(self, parts: list[Part], max_bytes: int | None) -> None:
        super()._use(parts, max_bytes)
        tree = self._priorities.weight = SegmentTree(self.maxsize)
        self._storage.other_nbytes = tree._value.nbytes
        self._followed = [(0, 0, 0)] * len(parts)

    @property
    def weight(self) -> SegmentTree:  # type: ignore[override]
        """The priorities to the power of alpha, by index; 0 where no transition is stored."""
        return self._priorities.weight

    def _follow(self) -> None:
        """Update the priorities for transitions that were added, moved or evicted."""
        index: list[Index] = []
        values: list[NDArray[np.float64]] = []
        for part_id, part in enumerate(self.buffers):
            first, stop, ring = before = self._followed[part_id]
            now = self._followed[part_id] = (part.first, part.next, part.ring)
            if now == before:
                continue
            is_cleared = part.next < stop
            kept = np.arange(stop if is_cleared else max(first, part.first), stop)
            gone = np.arange(first, stop if ring != part.ring else stop - len(kept))
            added = np.arange(part.first if is_cleared else max(stop, part.first), part.next)
            offset = part_id * self._part_size
            index.append(offset + gone % max(ring, 1))
            values.append(np.zeros(len(gone)))
            if ring != part.ring and len(kept):
                index.append(offset + kept % part.ring)
                values.append(np.asarray(self.weight[offset + kept % ring]))
            index.append(offset + added % max(part.ring, 1))
            initial = self._priorities._max_prio**self._priorities._alpha
            values.append(np.full(len(added), initial, float))
        if sum(map(len, index)):
            self.weight[np.concatenate(index)] = np.concatenate(values)

    def add(
        self,
        batch: RolloutBatchProtocol,
        buffer_ids: NDArray[np.int_] | list[int] | None = None,
    ) -> Added:
        """Add one transition for each of some environments, with the highest priority so far."""
        added = super().add(batch, buffer_ids)
        self._follow()
        return added

    def update(self, buffer: ReplayBuffer) -> Index:
        """Add all transitions of another buffer, with the highest priority so far."""
        index = super().update(buffer)
        self._follow()
        return index

    def reset(self, keep_statistics: bool = False) -> None:
        """Remove all transitions and their priorities; the highest and lowest so far remain."""
        super().reset(keep_statistics)
        self._follow()

    def lower_max_bytes(self, max_bytes: int) -> None:
        """Store fewer bytes from now on."""
        super().lower_max_bytes(max_bytes)
        self._follow()

    def sample_indices(self, batch_size: int | None) -> Index:
        """Sample indices by their priorities; 0 and None are all, oldest first."""
        if batch_size is None or batch_size < 1 or not len(self):
            return super().sample_indices(batch_size)
        sums = self._random_state.rand(batch_size) * self.weight.reduce()
        return np.asarray(self.weight.get_prefix_sum_idx(sums))

    def __getitem__(self, index: Any) -> PrioBatchProtocol:
        """Read transitions, with the weights of their losses."""
        index = self._chosen(index)
        batch: Any = super().__getitem__(index)
        weight = self.get_weight(index)
        batch.weight = weight / np.max(weight) if self._priorities._weight_norm else weight
        return batch  # type: ignore[no-any-return]

    def init_weight(self, index: int | Index) -> None:
        """Give transitions the highest priority so far."""
        self._priorities.init_weight(np.asarray(index).reshape(-1) % self.maxsize)

    def get_weight(self, index: int | Index) -> Any:
        """Return the weights that correct for the priorities, not normalized."""
        return self._priorities.get_weight(np.asarray(index) % self.maxsize)

    def update_weight(self, index: Index, new_weight: NDArray[Any] | torch.Tensor) -> None:
        """Set priorities, such as TD errors; evicted transitions are ignored."""
        stored = self.weight[index] > 0
        if np.any(stored):
            self._priorities.update_weight(index[stored], to_numpy(new_weight)[stored])

    def set_beta(self, beta: float) -> None:
        """Change the exponent of the weights."""
        self._priorities.set_beta(beta)

    def write_to(self, file: BinaryIO) -> None:
        """Write everything at the position of an open file."""
        content = {
            "weight_norm": self._priorities._weight_norm,
            "weights": self.weight[self._reader.all_indices()],
            # Arrays, whose dtypes are kept: further priorities round as they would have.
            **{name: np.asarray(getattr(self._priorities, name)) for name in _NUMBERS},
        }
        write_container(file, FORMAT, content)
        super().write_to(file)

    @classmethod
    def read_from(cls, file: BinaryIO, **options: Any) -> Self:
        """Read what :meth:`write_to` wrote, from the position of an open file to its end.

        :raises ReplayFileError: if the file is damaged.
        """
        container = Container(file, FORMAT)
        container.finish()
        with FORMAT.checking():
            content = container.content
            numbers = {name: content[name][()] for name in _NUMBERS}
            FORMAT.require(all(n.ndim == 0 and _is_sound(n) for n in numbers.values()), "number")
            # Plain numbers: numpy 2 would compute in the precision of one that is its own.
            numbers |= {name: numbers[name].item() for name in ("_alpha", "_beta")}
            alpha, beta = float(numbers["_alpha"]), float(numbers["_beta"])
            norm = bool(content["weight_norm"])
            buffer = super().read_from(file, alpha=alpha, beta=beta, weight_norm=norm)
            weights, index = content["weights"], buffer._reader.all_indices()
            FORMAT.require(weights.shape == index.shape and _is_sound(weights), "priorities")
            # Otherwise no transition could be sampled, or none be weighed against the others.
            FORMAT.require(not len(index) or 0 < float(weights.sum()) < inf, "priorities")
            highest, lowest = float(numbers["_max_prio"]), float(numbers["_min_prio"])
            FORMAT.require(lowest > 0 and 0 < (highest**alpha / lowest) ** beta < inf, "number")
            FORMAT.require(0 < highest**alpha < inf, "number")
            buffer._follow()
            if len(index):
                buffer.weight[index] = weights
            vars(buffer._priorities).update(numbers)
        return buffer


def _is_sound(values: Any) -> bool:
    return values.dtype.kind in "iuf" and bool(np.all(np.isfinite(values) & (values >= 0)))
