"""Choosing actions as Tianshou does, at less cost."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch
from torch import nn

from medqn_tianshou.fast.known import KnownNetwork
from medqn_tianshou.fast.passes import action_values

_EPS_IS_ZERO = 1e-8
"""At smaller exploration rates, Tianshou does not sample random numbers for exploration."""


class Actor:
    """Chooses actions with the random numbers that Tianshou's DQN samples, in its order.

    It is valid as long as network and policy do not change. A known network is not evaluated
    if all actions are random.

    :param known: what is known of the network.
    :param eps: the exploration rate.
    :param compiled: whether to use compiled code, where it applies.
    """

    def __init__(
        self,
        network: nn.Module,
        known: KnownNetwork | None,
        *,
        eps: float,
        action_count: int,
        compiled: bool,
    ) -> None:
        self._network = network
        self._flat = known.flat if compiled and known is not None else None
        self.has_modes = known is None
        """Whether the network may act differently in training and in evaluation mode."""
        self.eps = eps
        self._action_count, self._compiled = action_count, compiled

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.int64]:
        """Choose for a batch of observations, without action masks."""
        flat, eps = self._flat, self.eps
        explores = abs(eps) > _EPS_IS_ZERO
        if len(obs) == 1 and flat is not None and flat.takes(obs):
            # The same for one state, in fewer calls, because it runs at every step.
            if explores:
                is_random = np.random.random() < eps
                sampled = np.random.rand(self._action_count)
                if is_random:
                    return np.array([sampled.argmax()])
            return np.array([flat.best_action(obs)])
        actions = self._greedy(obs) if self.has_modes else None
        if explores:
            is_random_B = np.random.rand(len(obs)) < eps
            sampled_B = _best(np.random.rand(len(obs), self._action_count))
            fits = flat is None or flat.takes(obs)  # the network raises the error
            if actions is None and fits and is_random_B.all():
                return sampled_B
        if actions is None:
            actions = self._greedy(obs)
        if explores:
            actions[is_random_B] = sampled_B[is_random_B]
        return actions

    def _greedy(self, obs: NDArray[Any]) -> NDArray[np.int64]:
        if self.has_modes:
            with torch.no_grad():
                q_BA = self._network(obs, state=None, info=Batch())[0]
        elif self._flat is not None and self._flat.takes(obs):
            return _best(self._flat.action_values(obs))
        else:
            with torch.inference_mode():
                q_BA = action_values(self._network, obs, compiled=self._compiled)
        return _best(q_BA.cpu().numpy())


def _best(values_BA: NDArray[Any]) -> NDArray[np.int64]:
    actions: NDArray[np.int64] = values_BA.argmax(1)
    return actions
