"""Networks that numba code computes, observations for them, and policies that learn with them."""

import numpy as np
import torch
from gymnasium import spaces

from medqn_tianshou import MinAtarQNetwork, MLPQNetwork, RealStateSampler

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
        "adam": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3),
        "adam, fused": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3, fused=True),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-2),
        "rmsprop, centered": lambda p: torch.optim.RMSprop(
            p, lr=1e-3, alpha=0.95, eps=0.01, centered=True
        ),
        "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3, amsgrad=True),
        "decay": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-2, weight_decay=0.1),
    }[optimizer](model.parameters())
    schedule = options.pop("schedule", False)
    return policy_class(
        model=model,
        optim=optim,
        action_space=spaces.Discrete(ACTIONS),
        state_sampler=RealStateSampler(seed=1),
        lr_scheduler=torch.optim.lr_scheduler.ExponentialLR(optim, 0.9) if schedule else None,
        **{"target_update_freq": 7, "is_double": False, **options},
    )
