"""One seed for a run, and from it one for each source of randomness."""

import random
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch


@dataclass(frozen=True, kw_only=True)
class RunSeeds:
    """Seeds that follow from a run's seed and differ from each other.

    Without this, ten training environments seeded with 0 to 9 would share nine games with those of
    the next run, seeded with 1 to 10, and the evaluation would play the training games.
    """

    torch: int
    exploration: int
    replay: int
    state_sampler: int
    train_envs: int
    test_envs: int

    @classmethod
    def from_run_seed(cls, seed: int) -> Self:
        """Derive all seeds, each below 2**30 so that environments may count on from theirs.

        :param seed: the run's seed.
        """
        names = cls.__dataclass_fields__
        states = np.random.SeedSequence(seed).generate_state(len(names)) >> 2
        return cls(**dict(zip(names, map(int, states), strict=True)))


def seed_everything(seed: int) -> RunSeeds:
    """Seed the global generators (torch; numpy's, which explores) and return the other seeds.

    :param seed: the run's seed.
    """
    seeds = RunSeeds.from_run_seed(seed)
    random.seed(seeds.exploration)
    np.random.seed(seeds.exploration)
    torch.manual_seed(seeds.torch)
    return seeds
