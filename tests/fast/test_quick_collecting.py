"""Collecting without copies and workers gives the same as the plain way."""

import tracemalloc

import gymnasium as gym
import numpy as np
import pytest
import torch
from frames import ACTIONS, Frames, make_policy
from gymnasium import spaces
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.policy import DQNPolicy

from medqn_tianshou import LeanCollector, MLPQNetwork, UniformStateSampler
from medqn_tianshou.envs.single import SingleVectorEnv


def test_one_environment_plays_as_tianshous_vector_environment_does():
    def play(envs):
        envs.seed(7)
        seen = [envs.reset()[0]]
        for action in np.random.default_rng(0).integers(ACTIONS, size=40):
            obs, reward, terminated, truncated, info = envs.step(np.array([action]), np.array([0]))
            seen += [obs, reward, terminated, truncated]
            assert info[0]["env_id"] == 0
            if terminated[0] or truncated[0]:
                seen.append(envs.reset(np.array([0]))[0])
        return seen, [space.sample() for space in envs.action_space]

    (ours, our_actions), (stock, actions) = (
        play(envs) for envs in (SingleVectorEnv(Frames()), DummyVectorEnv([Frames]))
    )
    assert our_actions == actions
    for one, other in zip(ours, stock, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_every_state_received_is_shown_once():
    received, shown = [], []

    class Noting(Frames):
        def _observe(self):
            received.append(super()._observe())
            return received[-1]

    collector = LeanCollector(
        make_policy(),
        DummyVectorEnv([Noting]),
        VectorReplayBuffer(100, 1),
        on_states=lambda obs: shown.extend(obs.copy()),
    )
    collector.reset()
    collector.collect(n_step=60)
    np.testing.assert_array_equal(shown, received)


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
        # The last step ends no episode: a reset after it would be shown to one of them alone.
        collector.collect(n_step=33)
        assert not collector.buffer.done[32]
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
            self.left = 20_000
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
    collector = collector_class(policy, DummyVectorEnv([Long]), VectorReplayBuffer(20_000, 1))
    collector.reset()
    collector.collect(n_step=19_990, random=True)
    tracemalloc.start()
    collector.collect(n_step=20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert collector.collect_episode == 1
    episode_nbytes = 20_000 * 256 * 4
    if collector_class is LeanCollector:
        assert peak < episode_nbytes / 100
    else:
        assert peak > episode_nbytes  # else this test would see nothing
