"""The seeds of a run, and the states of the global random generators."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from medqn_tianshou.files.generators import (
    State,
    check_generator_state,
    generator_state,
    set_generator_state,
)


@dataclass(frozen=True, kw_only=True)
class RunSeeds:
    """Seeds that are derived from a run's seed and differ from each other.

    Without this, ten training environments seeded with 0 to 9 would share nine games with those of
    the next run, seeded with 1 to 10, and the evaluation would play the training games.
    """

    torch: int
    exploration: int
    replay: int
    state_sampler: int
    train_envs: int
    test_envs: int
    evaluation: int

    @classmethod
    def from_run_seed(cls, seed: int) -> Self:
        """Derive all seeds, each below 2**30, so that environment i can be seeded with seed + i."""
        names = cls.__dataclass_fields__
        states = np.random.SeedSequence(seed).generate_state(len(names)) >> 2
        return cls(**dict(zip(names, map(int, states), strict=True)))


def seed_everything(seed: int) -> RunSeeds:
    """Seed the global generators (torch; numpy's, which explores) and return the other seeds."""
    seeds = RunSeeds.from_run_seed(seed)
    random.seed(seeds.exploration)
    np.random.seed(seeds.exploration)
    torch.manual_seed(seeds.torch)
    return seeds


class OwnRandomNumbers:
    """A separate stream of numpy's global random numbers, for one activity of a run."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.RandomState(np.random.MT19937(seed))

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Use this stream in numpy's global generator inside the context."""
        others = np.random.get_state(legacy=False)
        np.random.set_state(self._generator.get_state(legacy=False))
        try:
            yield
        finally:
            self._generator.set_state(np.random.get_state(legacy=False))
            np.random.set_state(others)

    def state_dict(self) -> State:
        """Return what later numbers depend on."""
        return generator_state(self._generator)

    def load_state_dict(self, state: State) -> None:
        """Continue from what :meth:`state_dict` returned."""
        set_generator_state(self._generator, state)


def global_random_state() -> State:
    """Return the states of the global generators of Python, numpy and torch."""
    version, numbers, gauss = random.getstate()
    return {
        "python": [version, np.array(numbers, np.uint32), gauss],
        "numpy": dict(np.random.get_state(legacy=False)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_global_random_state(state: State) -> None:
    """Continue from what :func:`global_random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers.tolist()), gauss))
    check_generator_state(state["numpy"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([torch.from_numpy(cuda) for cuda in state["cuda"]])
