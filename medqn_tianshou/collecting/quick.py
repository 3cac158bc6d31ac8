"""The interface of policies to collectors that choose actions without Tianshou's batches."""

from typing import Any, Protocol

import torch
from numpy.typing import NDArray


class Actor(Protocol):
    """Chooses actions directly from an array of observations."""

    @property
    def has_modes(self) -> bool:
        """Whether its network may act differently in training and in evaluation mode."""

    def __call__(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Choose as ``forward`` and ``exploration_noise`` do, with the same random numbers.

        :param obs: a batch of observations, without action masks.
        """


class QuickPolicy(Protocol):
    """A policy that has an :class:`Actor`."""

    model: torch.nn.Module
    eps: float

    def actor(
        self,
        *,
        explore: bool,
        model: torch.nn.Module | None = None,
        eps: float | None = None,
    ) -> Actor | None:
        """Return an actor, valid until the policy changes; None if a subclass acts differently.

        :param model: the network to evaluate; None is the one that learns.
        :param eps: the exploration rate; None is the policy's.
        """


def quick_actor(policy: Any, *, explore: bool) -> Actor | None:
    """Return a policy's actor, or None if it has none."""
    # Not the attribute of an actor-critic policy, which is a network.
    return policy.actor(explore=explore) if hasattr(type(policy), "actor") else None
