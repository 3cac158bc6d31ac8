"""Actions, rewards and flags of one environment, each in the smallest exact dtype."""

from math import copysign
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Each represents exactly every value of those before it.
_FLOAT_LADDER = tuple(map(np.dtype, (np.int8, np.float16, np.float32, np.float64)))
_REMEMBERED = 32


class TightColumn:
    """A ring of values whose dtype widens when a value needs it, without losing a bit.

    :param dtype: the dtype of values that are added and read.
    :param length: slots of the ring.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], length: int) -> None:
        if dtype.hasobject:
            raise TypeError(f"values of dtype {dtype} cannot be stored; use a numeric dtype")
        self.dtype = dtype
        self.zero = np.zeros(shape, dtype)[()]
        self.values = np.zeros((length, *shape), _tightest(np.zeros(1, dtype), dtype))
        self._fits: set[Any] = set()
        self.is_wider = False
        """Whether the dtype has widened since this was last set to False."""

    def __setitem__(self, slot: int, value: Any) -> None:
        # A set treats 0.0 and -0.0 as the same value.
        if self.values.ndim > 1 or value not in self._fits or (value == 0 > copysign(1, value)):
            self._widen(np.asarray(value, self.dtype))
            if self.values.ndim == 1 and len(self._fits) < _REMEMBERED:
                self._fits.add(value)
        self.values[slot] = value

    def _widen(self, value: NDArray[Any]) -> None:
        wanted = _join(_tightest(value, self.dtype), self.values.dtype, self.dtype)
        if wanted != self.values.dtype:
            self.values = self.values.astype(wanted)
            self.is_wider = True

    def resize(self, slots: NDArray[np.int64], new_slots: NDArray[np.int64], length: int) -> None:
        """Move values to other slots of a ring of another length."""
        values = np.zeros((length, *self.values.shape[1:]), self.values.dtype)
        values[new_slots] = self.values[slots]
        self.values = values


def _tightest(values: NDArray[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The smallest dtype that represents all values exactly."""
    if dtype.kind in "iu" and values.size:
        return _join(np.min_scalar_type(values.min()), np.min_scalar_type(values.max()), dtype)
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            for candidate in _FLOAT_LADDER:
                if candidate.itemsize < dtype.itemsize and _same_bits(values, candidate):
                    return candidate
    return dtype


def _same_bits(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    return values.astype(dtype).astype(values.dtype).tobytes() == values.tobytes()


def _join(one: np.dtype[Any], other: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The smallest dtype that represents both, up to the dtype of the added values."""
    joint = np.promote_types(one, other)
    # For int64 and uint64, numpy returns float64, which represents neither exactly.
    return joint if joint.itemsize < dtype.itemsize else dtype
