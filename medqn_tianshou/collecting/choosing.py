"""Choosing actions as Tianshou's Collector does."""

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch, to_numpy
from tianshou.data.types import ObsBatchProtocol

from medqn_tianshou.host.api import Policy, explore

Actions = tuple[NDArray[Any], NDArray[Any]]
"""Actions as the policy returns them, and as the environments accept them."""


def random_actions(policy: Policy, spaces: Any, env_ids_R: NDArray[np.int_]) -> Actions:
    """Sample from the action spaces: Tianshou's environments have one each, EnvPool's share one."""
    own = isinstance(spaces, list)
    act_R = np.array([(spaces[i] if own else spaces).sample() for i in env_ids_R])
    return np.asarray(policy.map_action_inverse(act_R)), act_R


def policy_actions(policy: Policy, obs_RO: NDArray[Any], *, explores: bool) -> Actions:
    """Return the policy's actions."""
    obs_batch = cast(ObsBatchProtocol, Batch(obs=obs_RO, info=Batch()))
    with torch.no_grad():
        chosen = policy(obs_batch)
    if chosen.get("state") is not None:
        raise ValueError(
            f"policy={type(policy).__name__} has a recurrent state, which LeanCollector does not "
            "keep: use Tianshou's Collector"
        )
    act_R = to_numpy(chosen.act)
    if explores:
        act_R = explore(policy, act_R, obs_batch)
    return act_R, np.asarray(policy.map_action(act_R))
