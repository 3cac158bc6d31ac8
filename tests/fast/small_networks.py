"""Networks that numba code computes, observations for them, and policies that learn with them."""

import numpy as np
import torch
from gymnasium import spaces
from learners import decay_lr, in_both_versions

from medqn_tianshou import MinAtarQNetwork, MLPQNetwork, RealStateSampler
from medqn_tianshou.host.api import make_agent

ACTIONS = 3


def make_network(name):
    torch.manual_seed(0)
    if name == "vector":
        return MLPQNetwork(observation_shape=(4,), action_count=ACTIONS)
    if name == "one layer":
        return MLPQNetwork(observation_shape=(4,), action_count=ACTIONS, hidden_sizes=())
    shape = {"grid": (4, 10, 10), "odd grid": (7, 6, 6), "grid of numbers": (4, 10, 10)}[name]
    return MinAtarQNetwork(observation_shape=shape, action_count=ACTIONS)


def make_observations(name, count, generator):
    if name in ("vector", "one layer"):
        return generator.normal(size=(count, 4)).astype(np.float32)
    cells = generator.random((count, *((7, 6, 6) if name == "odd grid" else (4, 10, 10)))) < 0.2
    return cells * 3 if name == "grid of numbers" else cells


def make_policy(policy_class, name, optimizer="adam", **options):
    model = make_network(name)
    # Small constants in a divisor would blow up the rounding of gradients near zero.
    optim = {
        "adam": (torch.optim.Adam, {"eps": 1e-3}),
        "adam, fused": (torch.optim.Adam, {"eps": 1e-3, "fused": True}),
        "rmsprop": (torch.optim.RMSprop, {"eps": 1e-2}),
        "rmsprop, centered": (torch.optim.RMSprop, {"alpha": 0.95, "eps": 0.01, "centered": True}),
        "amsgrad": (torch.optim.Adam, {"eps": 1e-3, "amsgrad": True}),
        "decay": (torch.optim.RMSprop, {"eps": 1e-2, "weight_decay": 0.1}),
    }[optimizer]
    schedule = options.pop("schedule", False)
    defaults = {"gamma": 0.99, "n_step": 1, "huber": False, "target_update_freq": 7}
    policy = make_agent(
        policy_class,
        model=model,
        optimizer=(optim[0], {"lr": 1e-3, **optim[1]}),
        action_space=spaces.Discrete(ACTIONS),
        state_sampler=RealStateSampler(seed=1),
        **{**defaults, "is_double": False, **in_both_versions(options)},
    )
    if schedule:
        decay_lr(policy, 0.9)
    return policy
