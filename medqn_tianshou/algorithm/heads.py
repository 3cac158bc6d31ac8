"""Distributional networks, which predict a distribution of the return for each action."""

from collections.abc import Callable
from math import pi
from typing import Any, Literal

import torch
from torch import nn

from medqn_tianshou.algorithm.networks import Observations, QNetwork

Head = Literal["dqn", "qr", "c51", "iqn"]
QUANTILES = 51
"""As many as C51 has atoms; the paper of QR-DQN has 200, at four times the cost of its loss."""
ATOMS, V_MIN, V_MAX = 51, -10.0, 10.0
"""Of C51's paper."""
COSINES, FRACTIONS = 64, 32
"""IQN's paper: cosines of an embedding, and fractions for choosing an action."""


class QuantileNetwork(nn.Module):
    """QR-DQN's network (arXiv:1710.10044): quantiles of the return at fixed fractions.

    :param body: has one output for each quantile of each action.
    """

    def __init__(self, body: QNetwork, action_count: int) -> None:
        super().__init__()
        self.body = body
        self.action_count = action_count

    def forward(
        self, obs: Observations, state: Any = None, info: Any = None
    ) -> tuple[torch.Tensor, Any]:
        """Return the quantiles (states, actions, quantiles), and the recurrent state unchanged."""
        outputs, state = self.body(obs, state, info)
        return outputs.view(len(outputs), self.action_count, -1), state

    def action_values(self, obs: Observations) -> torch.Tensor:
        """Return the mean of each action's quantiles."""
        quantiles_BAN: torch.Tensor = self(obs)[0]
        return quantiles_BAN.mean(dim=2)


class CategoricalNetwork(QuantileNetwork):
    """C51's network (arXiv:1707.06887): probabilities of fixed returns."""

    def forward(
        self, obs: Observations, state: Any = None, info: Any = None
    ) -> tuple[torch.Tensor, Any]:
        """Return the probabilities (states, actions, atoms), and the state unchanged."""
        outputs, state = super().forward(obs, state, info)
        return outputs.softmax(dim=2), state

    def action_values(self, obs: Observations) -> torch.Tensor:
        """Return the expected return of each action."""
        probabilities_BAN: torch.Tensor = self(obs)[0]
        support_N = torch.linspace(
            V_MIN, V_MAX, probabilities_BAN.shape[2], device=probabilities_BAN.device
        )
        return (probabilities_BAN * support_N).sum(dim=2)


class ImplicitQuantileNetwork(nn.Module):
    """IQN's network (arXiv:1806.06923): quantiles of the return at any fractions.

    :param body: its features are multiplied by the embedding of a fraction.
    """

    def __init__(self, body: QNetwork, *, num_cosines: int = COSINES) -> None:
        super().__init__()
        self.body = body
        first: Any = body.advantage[0]
        self.embedding = nn.Sequential(nn.Linear(num_cosines, first.in_features), nn.ReLU())

    def forward(
        self,
        obs: Observations,
        sample_size: int = FRACTIONS,
        state: Any = None,
        info: Any = None,
        taus: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, torch.Tensor], Any]:
        """Return quantiles (states, actions, fractions) with their fractions, and the state.

        :param sample_size: how many fractions to sample for each state.
        :param taus: the fractions (states, fractions) instead.
        """
        features_BF = self.body.embed(obs)
        if taus is None:
            taus = torch.rand(len(features_BF), sample_size, device=features_BF.device)
        cosines: Any = self.embedding[0]
        steps = torch.arange(cosines.in_features, device=taus.device, dtype=taus.dtype)
        embedded_BNF = self.embedding((pi * steps * taus.unsqueeze(2)).cos())
        quantiles_BNA = self.body.advantage(features_BF.unsqueeze(1) * embedded_BNF)
        return (quantiles_BNA.transpose(1, 2), taus), state

    def action_values(self, obs: Observations) -> torch.Tensor:
        """Return the mean of each action's quantiles at evenly spaced fractions."""
        taus_N = (torch.arange(FRACTIONS) + 0.5) / FRACTIONS
        device = next(self.parameters()).device
        found: tuple[torch.Tensor, Any] = self(obs, taus=taus_N.repeat(len(obs), 1).to(device))[0]
        return found[0].mean(dim=2)


def make_head(
    head: Head, make_body: Callable[[int], QNetwork], action_count: int
) -> torch.nn.Module:
    """Build a network by the name of its head.

    :param make_body: builds a Q network with so many outputs.
    """
    if head == "qr":
        return QuantileNetwork(make_body(action_count * QUANTILES), action_count)
    if head == "c51":
        return CategoricalNetwork(make_body(action_count * ATOMS), action_count)
    body = make_body(action_count)
    return ImplicitQuantileNetwork(body) if head == "iqn" else body
