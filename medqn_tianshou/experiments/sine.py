"""Figure 1: a sine function, learned in two stages without and with knowledge consolidation."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812

from medqn_tianshou.algorithm.loss import consolidation_loss
from medqn_tianshou.algorithm.networks import MLPQNetwork
from medqn_tianshou.algorithm.samplers import UniformStateSampler

# The paper's appendix, "Supervised learning: approximating a sine function".
HIDDEN_SIZES = (32, 32)
LEARNING_RATE = 0.01
BATCH_SIZE = 32
UPDATES_PER_STAGE = 1000
# Its equation in "The effectiveness of knowledge consolidation" adds the two terms as they are.
CONSOLIDATION_COEF = 1.0

STAGES = {1: (0.0, 1.0), 2: (1.0, 2.0)}
METHODS = {"plain": "without consolidation", "consolidation": "with consolidation"}
GRID_POINTS = 1001

Inputs = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ErrorRow:
    """One line of ``errors.csv``: how far a network is from the sine on an interval."""

    seed: int
    method: str
    stage: int
    interval: str
    mse: float


def true_function(x_B1: Inputs) -> torch.Tensor:
    """Return sin(pi x)."""
    return torch.from_numpy(np.sin(np.pi * x_B1))


def train(*, seed: int, consolidate: bool, updates: int) -> list[MLPQNetwork]:
    """Learn the first half of the sine, then the second.

    With and without consolidation, a seed has the same initial weights and samples, so both are
    identical up to the end of stage 1.

    :param consolidate: add the consolidation loss in stage 2.
    :param updates: mini-batch updates in each stage.
    :return: the network as it was at the end of each stage.
    """
    network_seed, data_seed, sampler_seed = map(int, np.random.SeedSequence(seed).generate_state(3))
    torch.manual_seed(network_seed)
    network = MLPQNetwork(observation_shape=(1,), action_count=1, hidden_sizes=HIDDEN_SIZES)
    # One optimizer for both stages: the paper "continued training" and mentions no reset.
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    data = np.random.default_rng(data_seed)
    sampler = UniformStateSampler(
        observation_space=Box(-np.inf, np.inf, (1,), np.float32), seed=sampler_seed
    )
    learned: list[MLPQNetwork] = []
    for stage, (low, high) in STAGES.items():
        for _ in range(updates):
            x_B1 = data.uniform(low, high, size=(BATCH_SIZE, 1)).astype(np.float32)
            loss = F.mse_loss(network(x_B1)[0], true_function(x_B1))
            if stage == 1:
                # The bounds stay at those of stage 1, about [0, 1]. Grown to [0, 2], they would
                # hold the network to its target also on [1, 2], where that target has learned
                # nothing, and the sum would not approximate the true loss, as the paper says
                # it does.
                sampler.observe(x_B1)
            elif consolidate:
                x_hat_B1 = sampler.sample(BATCH_SIZE)
                with torch.no_grad():
                    # The target network is the network at the end of stage 1.
                    target_B1, _ = learned[0](x_hat_B1)
                distance = consolidation_loss(network(x_hat_B1)[0], target_B1)
                loss = loss + CONSOLIDATION_COEF * distance
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        learned.append(deepcopy(network))
    return learned


def grid(low: float, high: float) -> Inputs:
    """Return evenly spaced inputs, both ends included."""
    return np.linspace(low, high, GRID_POINTS, dtype=np.float32)[:, None]


@torch.no_grad()
def measure(seed: int, method: str, learned: Sequence[MLPQNetwork]) -> list[ErrorRow]:
    """Compute the mean squared error after each stage on each stage's interval."""
    return [
        ErrorRow(
            seed=seed,
            method=method,
            stage=stage,
            interval=f"[{low:g}, {high:g}]",
            mse=F.mse_loss(network(grid(low, high))[0], true_function(grid(low, high))).item(),
        )
        for stage, network in zip(STAGES, learned, strict=True)
        for low, high in STAGES.values()
    ]
