"""The states of numpy's random generators as plain data."""

from typing import Any

import numpy as np

State = dict[str, Any]
Generator = np.random.RandomState | np.random.Generator

_MT19937_WORDS = 624


def generator_state(generator: Generator) -> State:
    """Return the state of a generator, from which :func:`set_generator_state` continues."""
    if isinstance(generator, np.random.RandomState):
        return dict(generator.get_state(legacy=False))
    return dict(generator.bit_generator.state)


def set_generator_state(generator: Generator, state: State) -> None:
    """Continue from a state of a generator of the same kind."""
    check_generator_state(state)
    if isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def check_generator_state(state: State) -> None:
    """Raise ValueError for a state with which numpy would read beyond the generator's words."""
    if state["bit_generator"] != "MT19937":
        return  # numpy checks the others itself
    key, position = state["state"]["key"], state["state"]["pos"]
    sound = (
        isinstance(key, np.ndarray)
        and (key.dtype, key.shape) == (np.dtype(np.uint32), (_MT19937_WORDS,))
        and type(position) is int
        and 0 <= position <= _MT19937_WORDS
        and state.get("has_gauss", 0) in (0, 1)
    )
    if not sound:
        raise ValueError("not a valid state of a random generator")
