"""Adds transitions to the parts of all environments, with one limit in bytes."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.data.types import RolloutBatchProtocol

from medqn_tianshou.replay.columns import TightColumn
from medqn_tianshou.replay.part import TERMINATED, TRUNCATED, Part
from medqn_tianshou.replay.rows import make_rows
from medqn_tianshou.replay.runs import Times
from medqn_tianshou.replay.trees import Leaves, leaves

Added = tuple[Times, NDArray[Any], Times, Times]
"""For each transition: its index, and return, length and first index of its episode."""

FRAMES_PER_BLOCK = 24
"""Frames per block: longer blocks take less memory, shorter ones are faster to read."""
MOST_ROWS_PER_BLOCK = 8192
_ROW_OVERHEAD = 128
_RUN_NBYTES = 32
_SMALLEST_RING = 64
_RING_GROWTH = 1.25
_REQUIRED = {"obs", "act", "rew", "terminated", "truncated", "obs_next"}


class Storage:
    """Adds transitions, and evicts the oldest to stay below a limit in bytes.

    :param parts: one for each environment.
    :param max_bytes: the maximum number of bytes of all parts together; None is no limit.
    """

    def __init__(self, parts: list[Part], max_bytes: int | None) -> None:
        self.parts = parts
        self.max_bytes = max_bytes
        self.other_nbytes = 0
        """Bytes that the buffer stores beside its parts."""
        self.is_capped = False
        """Whether ``max_bytes``, rather than the size of a part, has evicted transitions."""
        self._sure_adds = 0.0  # adds that surely fit; counting bytes takes longer than adding

    @property
    def nbytes(self) -> int:
        """Bytes stored."""
        return self.other_nbytes + sum(part.nbytes for part in self.parts)

    def add(
        self,
        batch: RolloutBatchProtocol,
        part_ids: Sequence[int],
        *,
        stacked: bool,
        keep: Sequence[str],
    ) -> Added:
        """Add one transition for each of some environments.

        :param stacked: whether observations come stacked; only their newest frames are stored.
        :param keep: optional fields to store.
        """
        keys = batch.__dict__.keys()
        if not keys >= _REQUIRED:
            missing = sorted(_REQUIRED - keys)
            raise ValueError(f"the batch has no {missing}, which a transition needs")
        stacks, successors = leaves(batch.obs), leaves(batch.obs_next)
        if stacked:
            successors = {name: value[:, -1] for name, value in successors.items()}
        else:
            stacks = {name: value[:, None] for name, value in stacks.items()}
        fields = leaves(batch.act, "act")
        fields["rew"] = np.asarray(batch.rew, float)
        for key in keep:
            if key in keys:
                fields |= leaves(batch[key], key)
        flags = {key: np.asarray(batch[key], bool) for key in ("terminated", "truncated")}
        # All of it before any is stored: otherwise later transitions would be shifted.
        is_first = not self.parts[0].stores
        try:
            self._prepare(successors, fields)
            self._check(part_ids, stacks, successors, fields | flags)
            fields = {name: self._cast(name, values) for name, values in fields.items()}
        except Exception:
            if is_first:  # its shapes count for no other transition
                for part in self.parts:
                    part.clear()
            raise
        for name, store in self.parts[0].stores.items():
            if stacks[name].dtype != store.dtype:  # as in an array, the first dtype decides
                stacks[name] = stacks[name].astype(store.dtype)
                successors[name] = successors[name].astype(store.dtype)
        # Python's own numbers are quicker to handle one by one than numpy's.
        values = {name: v.tolist() if v.ndim == 1 else v for name, v in fields.items()}
        sums = TERMINATED * flags["terminated"] + TRUNCATED * flags["truncated"]
        values["flags"] = sums.tolist()
        results = []
        for i, (part_id, flags) in enumerate(zip(part_ids, values["flags"], strict=True)):
            part = self.parts[part_id]
            self._add_one(
                part,
                {name: value[i] for name, value in stacks.items()},
                {name: value[i] for name, value in successors.items()},
                {name: value[i] for name, value in values.items()},
            )
            returned, length, start = part.count_step(values["rew"][i], flags != 0)
            offset = part_id * part.maxsize
            index = offset + (part.next - 1) % part.ring
            results.append((index, returned, length, offset + start % part.ring))
        columns = zip(*results, strict=True) if results else ([], [], [], [])
        indices, returns, lengths, starts = map(np.array, columns)
        return indices, returns, lengths, starts

    def _check(
        self, part_ids: Sequence[int], stacks: Leaves, successors: Leaves, fields: Leaves
    ) -> None:
        """Raise ValueError unless each environment has a transition like those that are stored."""
        part, count = self.parts[0], len(part_ids)
        for part_id in part_ids:
            if type(part_id) is not int or not 0 <= part_id < len(self.parts):
                raise ValueError(f"buffer_ids has {part_id}, which is none of {len(self.parts)}")
        for rows, before in ((stacks, 2), (successors, 1)):
            if rows.keys() != part.stores.keys():
                raise ValueError(f"observations of {sorted(rows)} are not of {sorted(part.stores)}")
            for name, store in part.stores.items():
                shape = rows[name].shape
                if shape[0] != count:
                    raise ValueError(f"observations of shape {shape} for {count} environments")
                if len(shape) < before or shape[before:] != store.shape:
                    raise ValueError(
                        f"observations of shape {shape[1:]} are not of the stored {store.shape}"
                    )
        for name, values in fields.items():
            column = part.columns.get(name)
            expected = (count, *(column.values.shape[1:] if column is not None else ()))
            if values.shape != expected:
                raise ValueError(f"{name} of shape {values.shape} must have the shape {expected}")

    def _cast(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return values as they are stored; raise ValueError where a whole number would change."""
        dtype = self.parts[0].columns[name].dtype
        if values.dtype == dtype:
            return values
        with np.errstate(invalid="ignore"):
            cast = values.astype(dtype)
        if dtype.kind in "biu" and not np.array_equal(cast, values):
            raise ValueError(f"{name}={values.tolist()} cannot be stored as {dtype}")
        return cast

    def _prepare(self, rows: Leaves, fields: Leaves) -> None:
        """Create the storage by the shapes and dtypes of transitions, one per environment."""
        if not self.parts[0].stores:
            self._make_stores(rows, fields)
        known = self.parts[0].columns
        for name in [name for name in fields if name not in known]:  # an info key that appears late
            for part in self.parts:
                part.columns[name] = _make_column(fields[name], part.ring)
            self.make_room(0)

    def _make_stores(self, rows: Leaves, fields: Leaves) -> None:
        stack_num, part_size = self.parts[0].stack_num, self.parts[0].maxsize
        ring = min(part_size, _SMALLEST_RING)
        row_nbytes = sum(row.nbytes // len(row) + _ROW_OVERHEAD for row in rows.values())
        fixed = ring * sum(value.nbytes // len(value) + _RUN_NBYTES for value in fields.values())

        def least(block_len: int) -> int:
            # The newest transition and the next, in blocks with a single row of them each.
            count = 3 * block_len + 2 * (stack_num + 1)
            return self.other_nbytes + int(len(self.parts) * (fixed + count * row_nbytes))

        block_len = FRAMES_PER_BLOCK
        if all(row.dtype != np.uint8 for row in rows.values()):
            block_len = min(max(part_size // 16, block_len), MOST_ROWS_PER_BLOCK)
        if self.max_bytes is not None:
            while block_len > 1 and least(block_len) > self.max_bytes:
                block_len //= 2
            if least(block_len) > self.max_bytes:
                raise ValueError(
                    f"max_bytes={self.max_bytes} is too small for these observations; "
                    f"use at least {least(block_len)}"
                )
        for part in self.parts:
            part.stores = {
                name: make_rows(row.shape[1:], row.dtype, block_len, stack_num)
                for name, row in rows.items()
            }
            part.columns = {name: _make_column(value, ring) for name, value in fields.items()}
            part.columns["flags"] = TightColumn((), np.dtype(np.uint8), ring)
            part.ring = ring

    def _add_one(
        self, part: Part, stacks: Leaves, successor: Leaves, fields: dict[str, Any]
    ) -> None:
        if len(part) == part.ring < part.maxsize:
            self._grow_ring(part)
        while len(part) >= part.ring:
            part.evict_oldest()
        if self._sure_adds < 1:
            self.make_room(part.next_add_nbytes)
        self._sure_adds -= 1
        part.add(stacks, successor, fields)
        for column in part.columns.values():
            if column.is_wider:
                column.is_wider = False
                self.make_room(0)

    def _grow_ring(self, part: Part) -> None:
        ring = min(part.maxsize, int(part.ring * _RING_GROWTH))
        new = sum(column.values.nbytes for column in part.columns.values()) * ring // part.ring
        # The old ring stays in memory until all values are moved.
        if self.max_bytes is None or self.nbytes + new <= self.max_bytes:
            part.resize_ring(ring)
            self._sure_adds = 0
        else:
            self.is_capped = True

    def make_room(self, nbytes: int) -> None:
        """Evict the oldest of the environment with most transitions until bytes are free."""
        if self.max_bytes is None:
            self._sure_adds = inf
            return
        while self.nbytes + nbytes > self.max_bytes:
            if any(part.shrink_ring(_SMALLEST_RING) for part in self.parts):
                continue
            if not any(part.evict_block() for part in sorted(self.parts, key=len)[::-1]):
                break
            self.is_capped = True
        free = self.max_bytes - self.nbytes
        most = max(part.most_add_nbytes for part in self.parts)
        self._sure_adds = free // most if most else 0


def _make_column(values: NDArray[Any], ring: int) -> TightColumn:
    return TightColumn(values.shape[1:], values.dtype, ring)
