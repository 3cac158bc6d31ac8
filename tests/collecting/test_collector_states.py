"""LeanCollector shows every state it acts from, and reads none back."""

import tracemalloc
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from frames import Frames, make_policy
from gymnasium import spaces
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.policy import DQNPolicy

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    FastMeDQNPolicy,
    LeanCollector,
    MLPQNetwork,
    UniformStateSampler,
)


def test_every_state_acted_from_is_shown_once():
    acted_from, shown = [], []

    class Noting(Frames):
        def reset(self, **options):
            self.current, info = super().reset(**options)
            return self.current, info

        def step(self, action):
            acted_from.append(self.current)
            self.current, *rest = super().step(action)
            return self.current, *rest

    collector = LeanCollector(
        make_policy(),
        DummyVectorEnv([Noting]),
        VectorReplayBuffer(100, 1),
        on_states=lambda obs: shown.extend(obs.copy()),
    )
    collector.reset()
    collector.collect(n_step=60)
    assert collector.collect_episode > 1
    np.testing.assert_array_equal(shown, acted_from)


def test_bounds_are_the_same_by_states_and_by_step_hook():
    def bounds(**hooks):
        envs = DummyVectorEnv([Frames])
        envs.seed(3)
        np.random.seed(0)
        sampler = UniformStateSampler(observation_space=Frames.observation_space, seed=0)
        policy = make_policy(state_sampler=sampler)
        wanted = {name: {"states": sampler.observe, "step": policy.observe_step}[way]
                  for name, way in hooks.items()}  # fmt: skip
        collector = LeanCollector(policy, envs, VectorReplayBuffer(100, 1), **wanted)
        collector.reset()
        collector.collect(n_step=33)
        return sampler.bounds

    one, other = bounds(on_states="states"), bounds(on_step_hook="step")
    np.testing.assert_array_equal(one.low, other.low)
    np.testing.assert_array_equal(one.high, other.high)


@pytest.mark.parametrize("collector_class", [LeanCollector, Collector])
def test_a_long_episode_takes_no_memory_at_its_end(collector_class):
    class Long(gym.Env):
        observation_space = spaces.Box(-1, 1, (256,), np.float32)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.left = 4_000
            return np.zeros(256, np.float32), {}

        def step(self, action):
            self.left -= 1
            return np.zeros(256, np.float32), 1.0, self.left == 0, False, {}

    model = MLPQNetwork(observation_shape=(256,), action_count=2, hidden_sizes=(4,))
    policy = DQNPolicy(
        model=model,
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        action_space=Long.action_space,
    )
    collector = collector_class(policy, DummyVectorEnv([Long]), VectorReplayBuffer(4_000, 1))
    collector.reset()
    collector.collect(n_step=3_990, random=True)
    tracemalloc.start()
    collector.collect(n_step=20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert collector.collect_episode == 1
    episode_nbytes = 4_000 * 256 * 4
    if collector_class is LeanCollector:
        assert peak < episode_nbytes / 20
    else:
        assert peak > episode_nbytes  # else this test would see nothing


@pytest.mark.parametrize("dropout", [False, True], ids=["known network", "with dropout"])
def test_a_network_that_is_not_known_in_full_acts_in_evaluation_mode(dropout):
    class Noted(torch.nn.Module):
        modes: ClassVar[list[bool]] = []

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout())

        def forward(self, obs, state=None, info=None):
            self.modes.append(self.training)
            return self.layer(torch.as_tensor(obs)), state

    network = Noted() if dropout else MLPQNetwork(observation_shape=(2,), action_count=3)
    policy = FastMeDQNPolicy(
        model=network,
        optim=torch.optim.Adam(network.parameters()),
        action_space=spaces.Discrete(3),
        target_update_freq=1,
    )
    assert policy.actor(explore=False).has_modes == dropout
    policy.train()
    envs = DummyVectorEnv([lambda: gym.make("MountainCar-v0")])
    collector = LeanCollector(policy, envs, CompactVectorReplayBuffer(20, 1, random_seed=0))
    collector.reset()
    collector.collect(n_step=5)
    assert policy.training
    assert Noted.modes == [False] * 5 * dropout
