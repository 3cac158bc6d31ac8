"""Finds transitions by Tianshou's indices, and reads their fields and observations."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch

from medqn_tianshou.replay.part import FLAGS, Part
from medqn_tianshou.replay.trees import Leaves, belongs_to, map_arrays, tree

Index = NDArray[np.int64]
Step = Callable[[Part, Index], Index]

OBSERVATIONS = {"obs": 0, "obs_next": 1}
"""How many rows behind the observation of a transition a key reads."""


class Found(NamedTuple):
    """Located transitions: per environment, their places among the indices, and their times."""

    shape: tuple[int, ...]
    size: int
    parts: list[tuple[int, Any, Index]]

    @classmethod
    def joined(cls, several: Sequence["Found"]) -> "Found":
        """Join several of equal size, one per row: shape (several, size)."""
        size = several[0].size
        if len(several) == 1:
            return several[0]._replace(shape=(1, size))
        by_part: dict[int, list[tuple[Index, Index]]] = {}
        places = np.arange(len(several) * size).reshape(-1, size)
        for row, found in zip(places, several, strict=True):
            for part_id, own, times in found.parts:
                by_part.setdefault(part_id, []).append((row[own], times))
        parts: Any = [
            (part_id, *map(np.concatenate, zip(*pieces, strict=True)))
            for part_id, pieces in by_part.items()
        ]
        return cls(places.shape, places.size, parts)


class Reader:
    """Reads transitions by their indices: ``part * part_size + time % ring``."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.part_size = parts[0].maxsize

    def locate(self, index: Any) -> Found:
        """Locate transitions by their indices, in any shape."""
        given = np.asarray(index)
        shape, flat, size = given.shape, given.reshape(-1), self.part_size * len(self.parts)
        if len(flat):
            if given.dtype.kind not in "iu":
                raise IndexError(f"an index must be a whole number, not of dtype {given.dtype}")
            lowest, highest = flat.min(), flat.max()
            if lowest < -size or highest >= size:
                wrong = lowest if lowest < -size else highest
                raise IndexError(f"index {wrong} is out of bounds for {size} slots")
        flat = flat.astype(np.int64, copy=False) % size
        if len(self.parts) == 1:
            owners: list[tuple[int, Any]] = [(0, slice(None))] if len(flat) else []
        else:
            part_ids = flat // self.part_size
            owners = [(int(i), np.flatnonzero(part_ids == i)) for i in np.unique(part_ids)]
        found = []
        for part_id, own in owners:
            part = self.parts[part_id]
            slots = flat[own] - part_id * self.part_size
            times = part.times(slots)
            if times.min() < part.first:
                lost = slots[times < part.first][0] + part_id * self.part_size
                raise IndexError(f"index {lost} contains no transition")
            found.append((part_id, own, times))
        return Found(shape, len(flat), found)

    def indices(self, part_id: int, times: Any) -> Index:
        """The indices of some times of an environment."""
        times = np.asarray(times, np.int64)
        return np.asarray(part_id * self.part_size + times % max(self.parts[part_id].ring, 1))

    def all_indices(self) -> Index:
        """All indices, those of an environment together, its oldest first."""
        return np.concatenate(
            [self.indices(i, np.arange(p.first, p.next)) for i, p in enumerate(self.parts)]
        )

    def neighbours(self, index: Any, step: Step) -> Any:
        """The indices of neighbours in time."""
        return self.index_of(self.moved(self.locate(index), step))

    def index_of(self, found: Found) -> Any:
        """The indices of located transitions."""
        result = np.empty(found.size, np.int64)
        for part_id, own, times in found.parts:
            result[own] = self.indices(part_id, times)
        return result.reshape(found.shape)[()]

    def moved(self, found: Found, step: Step) -> Found:
        """The transitions one step before or after located ones."""
        return found._replace(
            parts=[(i, own, step(self.parts[i], times)) for i, own, times in found.parts]
        )

    def has_field(self, key: str) -> bool:
        """Whether a field that is not an observation is stored."""
        return key in FLAGS or any(belongs_to(name, key) for name in self.parts[0].columns)

    def field(self, found: Found, key: str, stack_num: int = 1) -> Any:
        """Read a field that is not an observation, stacked with those of the transitions before."""
        shape = found.shape
        values = [self._gather(found, key)]
        for _ in range(stack_num - 1):
            found = self.moved(found, Part.before)
            values.insert(0, self._gather(found, key))
        value = values[0]
        if stack_num > 1:
            value = Batch.stack(values, 1) if isinstance(value, Batch) else np.stack(values, 1)
        if len(shape) == 1:
            return value
        return map_arrays(value, lambda array: array.reshape((*shape, *array.shape[1:]))[()])

    def _gather(self, found: Found, key: str) -> Any:
        stored = "flags" if key in FLAGS else key
        arrays: Leaves = {}
        for name, column in self.parts[0].columns.items():
            if belongs_to(name, stored):
                arrays[name] = out = np.empty((found.size, *column.values.shape[1:]), column.dtype)
                for part_id, own, times in found.parts:
                    part = self.parts[part_id]
                    out[own] = part.columns[name].values[times % part.ring]
        return FLAGS[key][arrays["flags"]] if key in FLAGS else tree(arrays, key)

    def observations(self, requests: list[tuple[Found, str]], stack_num: int) -> list[Any]:
        """Read stacked observations; each block is decoded once for all requests.

        :param requests: transitions, and ``"obs"`` or ``"obs_next"``.
        """
        stops = np.cumsum([found.size * stack_num for found, _ in requests])
        places = np.arange(stops[-1]).reshape(-1, stack_num)
        start = 0
        wanted: dict[int, list[tuple[Index, Index, Index]]] = {}
        for found, key in requests:
            for part_id, own, times in found.parts:
                own_places = places[start : start + found.size][own]
                shifts = np.full(len(times), OBSERVATIONS[key])
                wanted.setdefault(part_id, []).append((times, shifts, own_places))
            start += found.size
        arrays: Leaves = {}
        for name, store in self.parts[0].stores.items():
            arrays[name] = out = np.empty((int(stops[-1]), store.cells), store.dtype)
            for part_id, pieces in wanted.items():
                times, shifts, own_places = map(np.concatenate, zip(*pieces, strict=True))
                numbers = self.parts[part_id].rows(times, shifts, stack_num)
                self.parts[part_id].stores[name].read(numbers.ravel(), own_places.ravel(), out)
        stack_shape = (stack_num,) if stack_num > 1 else ()
        return [
            tree(
                {
                    name: out[stop - found.size * stack_num : stop].reshape(
                        (*found.shape, *stack_shape, *self.parts[0].stores[name].shape)
                    )[()]
                    for name, out in arrays.items()
                }
            )
            for (found, _), stop in zip(requests, stops, strict=True)
        ]
