"""Choosing actions as Tianshou does, at less cost."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from medqn_tianshou.algorithm.networks import QNetwork

_EPS_IS_ZERO = 1e-8
"""Below it Tianshou does not explore, nor draw random numbers for it."""


class Actor:
    """Chooses actions as ``forward`` and ``exploration_noise`` of Tianshou's DQN do together.

    :param action_count: number of actions.
    """

    def __init__(self, action_count: int) -> None:
        self.action_count = action_count

    def choose(self, network: nn.Module, obs: NDArray[Any], eps: float) -> NDArray[np.int64]:
        """Choose actions, with the random draws that Tianshou makes, in its order.

        :param network: the Q network; not asked where all actions are random.
        :param obs: a batch of observations.
        :param eps: the exploration rate.
        """
        explores = abs(eps) > _EPS_IS_ZERO
        if explores:
            is_random = np.random.rand(len(obs)) < eps
            drawn: NDArray[np.int64] = np.random.rand(len(obs), self.action_count).argmax(1)
            random_count = np.count_nonzero(is_random)
            if random_count == len(obs):
                return drawn
        compiled = network.compiled if isinstance(network, QNetwork) else None
        actions: NDArray[np.int64]
        if compiled is not None and obs.dtype != np.uint8:
            actions = compiled.act_values(obs).argmax(1)
        else:
            with torch.inference_mode():
                actions = network(obs, state=None, info={})[0].cpu().numpy().argmax(1)
        if explores and random_count:
            actions[is_random] = drawn[is_random]
        return actions
