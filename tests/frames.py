"""A game of noise on a screen, a policy for it and a filled buffer, for several tests."""

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from learners import in_both_versions
from tianshou.data import VectorReplayBuffer
from tianshou.env import DummyVectorEnv

from medqn_tianshou import LeanCollector, NatureQNetwork
from medqn_tianshou.fast.policy import FastMeDQNPolicy
from medqn_tianshou.host.api import make_agent

ACTIONS = 3
FRAMES = (4, 36, 36)


class Frames(gym.Env):
    """Noise on a screen; a chance to end, a limit in time."""

    observation_space = spaces.Box(0, 255, FRAMES, np.uint8)
    action_space = spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_count = 0
        return self._observe(), {}

    def step(self, action):
        self.step_count += 1
        ends = self.np_random.random() < 0.1
        return self._observe(), float(action), ends, self.step_count >= 12, {}

    def _observe(self):
        return self.np_random.integers(256, size=FRAMES, dtype=np.uint8)


def make_policy(policy_class=FastMeDQNPolicy, *, device="cpu", channels_last=False, **options):
    torch.manual_seed(0)
    model = NatureQNetwork(
        observation_shape=FRAMES, action_count=ACTIONS, channels_last=channels_last
    ).to(device)
    defaults = {"gamma": 0.99, "n_step": 1, "huber": False, "target_update_freq": 3}
    return make_agent(
        policy_class,
        model=model,
        optimizer=(torch.optim.SGD, {"lr": 0.01}),
        action_space=spaces.Discrete(ACTIONS),
        **{**defaults, "is_double": False, **in_both_versions(options)},
    )


def filled(buffer_class=VectorReplayBuffer, steps=60):
    buffer = buffer_class(100, 2)
    envs = DummyVectorEnv([Frames, Frames])
    envs.seed(1)
    collector = LeanCollector(make_policy(), envs, buffer)
    collector.reset()
    collector.collect(n_step=steps, random=True)
    return buffer
