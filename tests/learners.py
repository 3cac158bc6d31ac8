"""Policies, filled buffers and updates that several tests of learning share."""

import numpy as np
import torch
from gymnasium import spaces
from tianshou.data import Batch
from tianshou.utils.torch_utils import policy_within_training_step

from medqn_tianshou import MLPQNetwork
from medqn_tianshou.algorithm.consolidation import EXTRA_STATE
from medqn_tianshou.host.api import make_agent

OBS_SIZE, ACTIONS, ENVS = 4, 3, 3
NAMES = {"discount_factor": "gamma", "estimation_step": "n_step", "clip_loss_grad": "huber"}
"""Tianshou 1.2's names, which the tests use, and those that fit both versions."""


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


def in_both_versions(options):
    return {NAMES.get(name, name): value for name, value in options.items()}


def decay_lr(policy, factor):
    optim = getattr(policy.optim, "_optim", policy.optim)  # Tianshou 2 wraps it
    schedule = torch.optim.lr_scheduler.ExponentialLR(optim, factor)
    if hasattr(policy, "lr_schedulers"):  # Tianshou 2
        policy.lr_schedulers.append(schedule)
    else:
        policy.lr_scheduler = schedule


def build(policy_class, *, dueling=False, lr_decay=False, lr=1e-3, dtype=torch.float32, **options):
    torch.manual_seed(0)
    model = MLPQNetwork(
        observation_shape=(OBS_SIZE,), action_count=ACTIONS, hidden_sizes=(16,), dueling=dueling
    ).to(dtype)
    defaults = {"gamma": 0.99, "n_step": 1, "huber": False, "target_update_freq": 7}
    policy = make_agent(
        policy_class,
        model=model,
        optimizer=(torch.optim.Adam, {"lr": lr}),
        action_space=spaces.Discrete(ACTIONS),
        **{**defaults, **in_both_versions(options)},
    )
    if lr_decay:
        decay_lr(policy, 0.99)
    return policy


def update(policy, buffer, count=1, batch_size=16):
    with policy_within_training_step(getattr(policy, "policy", policy)):
        return [policy.update(sample_size=batch_size, buffer=buffer) for _ in range(count)]


def assert_same_parameters(policy, other, tolerance=0.0):
    states = [
        one.parameters_by_name() if hasattr(one, "parameters_by_name") else dict(one.state_dict())
        for one in (policy, other)
    ]
    for state in states:
        state.pop(EXTRA_STATE, None)  # which DQNPolicy does not have
    for (name, value), expected in zip(states[0].items(), states[1].values(), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=tolerance, msg=name)
