"""What a policy offers to collectors that choose actions without Tianshou's batches."""

from typing import Any, Protocol

import torch
from numpy.typing import NDArray


class QuickPolicy(Protocol):
    """A policy that chooses actions directly from an array of observations."""

    model: torch.nn.Module
    eps: float

    @property
    def chooses_quickly(self) -> bool:
        """Whether :meth:`choose_actions` may be used: False where a subclass acts differently."""

    @property
    def has_modes(self) -> bool:
        """Whether the network may act differently in training and in evaluation mode."""

    def choose_actions(
        self,
        obs: NDArray[Any],
        *,
        explore: bool,
        model: torch.nn.Module | None = None,
        eps: float | None = None,
    ) -> NDArray[Any]:
        """Choose as ``forward`` and ``exploration_noise`` do, with the same random numbers.

        :param model: the network to evaluate; None is the one that learns.
        :param eps: the exploration rate; None is the policy's.
        """


def chooses_quickly(policy: object) -> bool:
    """Whether a policy is a :class:`QuickPolicy` whose ``choose_actions`` may be used."""
    return bool(getattr(policy, "chooses_quickly", False))
