"""Observations and other fields may be nested Batches: split them into arrays, and rebuild them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch

Leaves = dict[str, NDArray[Any]]
"""The arrays of a value by name; most values are one array, named ``""``."""

_SEPARATOR = "\0"  # between the keys of nested Batches, which may contain any other character


def leaves(value: Any, name: str = "") -> Leaves:
    """Name the arrays in a value: one, or those of a Batch by their paths."""
    if isinstance(value, np.ndarray):
        return {name: value}
    if not isinstance(value, Batch):
        return {name: np.asarray(value)}
    arrays: Leaves = {}
    for key in sorted(value.get_keys()):
        arrays |= leaves(value[key], f"{name}{_SEPARATOR}{key}" if name else key)
    return arrays


def tree(arrays: Leaves, key: str = "") -> Any:
    """Rebuild the value that :func:`leaves` split under the name ``key``."""
    if set(arrays) == {key}:
        return arrays[key]
    root = Batch()
    for name, value in arrays.items():
        *path, last = name.removeprefix(key).removeprefix(_SEPARATOR).split(_SEPARATOR)
        node = root
        for part in path:
            if part not in node.get_keys():
                node[part] = Batch()
            node = node[part]
        node[last] = value
    return root


def belongs_to(name: str, key: str) -> bool:
    """Whether an array is, or is part of, the value with this key."""
    return name == key or name.startswith(key + _SEPARATOR)


def map_arrays(value: Any, change: Callable[[NDArray[Any]], Any]) -> Any:
    """Apply a function to each array of a value."""
    if isinstance(value, np.ndarray):
        return change(value)
    return Batch({key: map_arrays(value[key], change) for key in value.get_keys()})
