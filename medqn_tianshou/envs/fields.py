"""Restoring a game's saved fields, with a check of their types."""

from typing import Any

import numpy as np


def set_fields(owner: Any, names: tuple[str, ...], state: dict[str, Any]) -> None:
    """Set the named fields of an object from a state that has exactly these, of the same types."""
    if state.keys() != set(names):
        raise ValueError(f"a state of {sorted(state)} is not one of {sorted(names)}")
    for name in names:
        old, new = getattr(owner, name), state[name]
        known = old is not None and new is not None
        if known and _kind(old) is not _kind(new):
            raise ValueError(f"{name}={new!r} is of the wrong type")
        if isinstance(old, np.ndarray) and known and old.shape != new.shape:
            raise ValueError(f"{name} has the wrong shape {new.shape}")
        setattr(owner, name, new)


def _kind(value: Any) -> type:
    # Games switch between integers and floats, numpy's and Python's: all numbers are one kind.
    return float if isinstance(value, bool | int | float | np.generic) else type(value)
