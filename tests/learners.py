"""Policies, filled buffers and updates that several tests of learning share."""

import numpy as np
import torch
from gymnasium import spaces
from tianshou.data import Batch
from tianshou.utils.torch_utils import policy_within_training_step

from medqn_tianshou import MLPQNetwork
from medqn_tianshou.algorithm.consolidation import EXTRA_STATE

OBS_SIZE, ACTIONS, ENVS = 4, 3, 3


def filled(buffer, steps=60, seed=0):
    rng = np.random.default_rng(seed)
    for step in range(steps):
        # environment 2 joins late, so that the parts differ in length
        envs = np.arange(ENVS if step > 20 else ENVS - 1)
        buffer.add(
            Batch(
                obs=rng.normal(size=(len(envs), OBS_SIZE)).astype(np.float32),
                obs_next=rng.normal(size=(len(envs), OBS_SIZE)).astype(np.float32),
                act=rng.integers(ACTIONS, size=len(envs)),
                rew=rng.normal(size=len(envs)),
                terminated=rng.random(len(envs)) < 0.1,
                truncated=rng.random(len(envs)) < 0.05,
            ),
            buffer_ids=envs,
        )
    return buffer


def build(policy_class, *, dueling=False, lr_decay=False, lr=1e-3, dtype=torch.float32, **options):
    torch.manual_seed(0)
    model = MLPQNetwork(
        observation_shape=(OBS_SIZE,), action_count=ACTIONS, hidden_sizes=(16,), dueling=dueling
    ).to(dtype)
    optim = torch.optim.Adam(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optim, 0.99) if lr_decay else None
    return policy_class(
        model=model,
        optim=optim,
        action_space=spaces.Discrete(ACTIONS),
        lr_scheduler=scheduler,
        **{"target_update_freq": 7, **options},
    )


def update(policy, buffer, count=1, batch_size=16):
    with policy_within_training_step(policy):
        return [policy.update(sample_size=batch_size, buffer=buffer) for _ in range(count)]


def assert_same_parameters(policy, other, tolerance=0.0):
    states = [dict(one.state_dict()) for one in (policy, other)]
    for state in states:
        state.pop(EXTRA_STATE, None)  # which DQNPolicy does not have
    for (name, value), expected in zip(states[0].items(), states[1].values(), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=tolerance, msg=name)
