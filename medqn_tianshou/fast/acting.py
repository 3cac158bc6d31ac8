"""Choosing actions as Tianshou does, at less cost."""

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch
from torch import nn

from medqn_tianshou.fast.known import KnownNetwork
from medqn_tianshou.fast.passes import action_values

_EPS_IS_ZERO = 1e-8
"""Below it Tianshou does not explore, nor sample random numbers for it."""


def choose_actions(
    network: nn.Module,
    known: KnownNetwork | None,
    obs: NDArray[Any],
    *,
    eps: float,
    action_count: int,
    compiled: bool,
) -> NDArray[np.int64]:
    """Choose actions with the random numbers that Tianshou's DQN samples, in its order.

    A known network is not evaluated where all actions are random.

    :param known: what is known of the network.
    :param obs: a batch of observations, without action masks.
    :param eps: the exploration rate.
    :param compiled: whether to use compiled code, where it applies.
    """
    actions: Any = None
    sampled: Any = None
    if known is None:
        with torch.no_grad():
            q_BA = network(obs, state=None, info=Batch())[0]
        actions = q_BA.cpu().numpy().argmax(1)
    explores = abs(eps) > _EPS_IS_ZERO
    if len(obs) == 1 and compiled and known is not None and known.flat and known.flat.takes(obs):
        if explores:  # the same for one state, in fewer calls: it comes with every step
            explores = np.random.random() < eps
            sampled = np.random.rand(1, action_count)
        values = sampled if explores else known.flat.action_values(obs)
        return cast(NDArray[np.int64], values.argmax(1))
    if explores:
        is_random = np.random.rand(len(obs)) < eps
        sampled = np.random.rand(len(obs), action_count).argmax(1)
        random_count = np.count_nonzero(is_random)
        if random_count == len(obs):
            return cast(NDArray[np.int64], sampled)
    if actions is None:
        if compiled and known is not None and known.flat and known.flat.takes(obs):
            actions = known.flat.action_values(obs).argmax(1)
        else:
            with torch.inference_mode():
                actions = action_values(network, obs, compiled=compiled).cpu().numpy().argmax(1)
    if explores and random_count:
        actions[is_random] = sampled[is_random]
    return cast(NDArray[np.int64], actions)
