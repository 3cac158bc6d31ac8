"""The states of random generators as plain data, to save and to continue from."""

import random
from typing import Any

import numpy as np
import torch

State = dict[str, Any]


def generator_state(generator: np.random.RandomState | np.random.Generator) -> State:
    """Return the state of one of numpy's generators, old or new.

    :param generator: the generator.
    """
    if isinstance(generator, np.random.RandomState):
        return dict(generator.get_state(legacy=False))
    return dict(generator.bit_generator.state)


def set_generator_state(
    generator: np.random.RandomState | np.random.Generator, state: State
) -> None:
    """Continue from what :func:`generator_state` returned.

    :param generator: a generator of the same kind.
    :param state: the state.
    """
    if isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def global_random_state() -> State:
    """Return the states of the generators that a process has one of."""
    version, numbers, gauss = random.getstate()
    return {
        "python": [version, np.array(numbers, np.uint32), gauss],
        "numpy": dict(np.random.get_state(legacy=False)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_global_random_state(state: State) -> None:
    """Continue from what :func:`global_random_state` returned.

    :param state: the states.
    """
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers.tolist()), gauss))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([torch.from_numpy(cuda) for cuda in state["cuda"]])
