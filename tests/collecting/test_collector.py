"""LeanCollector against Tianshou's own Collector."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv

from medqn_tianshou import MeDQNPolicy, MLPQNetwork
from medqn_tianshou.collecting.lean import LeanCollector


class Walk(gym.Env):
    """Ends by termination or truncation after a random number of steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_count = 0
        return self._observe(), {"start": True}

    def step(self, action):
        self.step_count += 1
        chance = self.np_random.random()
        reward = float(self.np_random.normal() + action)
        return self._observe(), reward, chance < 0.1, self.step_count >= 9, {"chance": chance}

    def _observe(self):
        return np.append(self.np_random.normal(size=2), self.step_count).astype(np.float32)


TASKS = {"walk": Walk, "cartpole": lambda: gym.make("CartPole-v1", max_episode_steps=15)}


def make_policy(env):
    torch.manual_seed(0)
    model = MLPQNetwork(
        observation_shape=env.observation_space.shape, action_count=int(env.action_space.n)
    )
    policy = MeDQNPolicy(
        model=model,
        optim=torch.optim.Adam(model.parameters()),
        action_space=env.action_space,
        target_update_freq=1,
    )
    policy.set_eps(0.4)
    return policy


def collected(collector_class, task, env_count, calls, buffer_size):
    np.random.seed(3)
    envs = DummyVectorEnv([TASKS[task] for _ in range(env_count)])
    envs.seed(5)
    for space in envs.action_space:
        space.seed(1)
    seen = []

    def hook(action_batch, rollout_batch):
        seen.append((action_batch.act.copy(), rollout_batch.obs_next.copy()))

    buffer = VectorReplayBuffer(buffer_size, env_count)
    policy = make_policy(TASKS[task]())
    collector = collector_class(policy, envs, buffer, exploration_noise=True, on_step_hook=hook)
    collector.reset()
    stats = [collector.collect(**call) for call in calls]
    return collector, buffer, stats, seen


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("env_count", [1, 3])
@pytest.mark.parametrize(
    "calls",
    [
        [{"n_step": 30, "random": True}, {"n_step": 12}, {"n_step": 90}],
        [{"n_episode": 3}, {"n_episode": 7}],
        [{"n_step": 30}, {"n_episode": 4}, {"n_step": 15, "reset_before_collect": True}],
    ],
    ids=["steps", "episodes", "both"],
)
def test_same_transitions_statistics_and_draws_as_tianshou(task, env_count, calls):
    ours, our_buffer, our_stats, our_hook = collected(LeanCollector, task, env_count, calls, 600)
    stock, buffer, stats, hook = collected(Collector, task, env_count, calls, 600)
    assert len(buffer) == len(our_buffer) > 20
    indices = buffer.sample_indices(0)
    np.testing.assert_array_equal(our_buffer.sample_indices(0), indices)
    for key in ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next"):
        expected, value = buffer.get(indices, key), our_buffer.get(indices, key)
        np.testing.assert_array_equal(value, expected, key)
        assert value.dtype == expected.dtype
    for one, other in zip(our_stats, stats, strict=True):
        assert one.n_collected_steps == other.n_collected_steps
        assert one.n_collected_episodes == other.n_collected_episodes
        np.testing.assert_allclose(one.returns, other.returns, rtol=1e-12)
        np.testing.assert_array_equal(one.lens, other.lens)
        assert (one.lens_stat is None) == (other.lens_stat is None)
        assert one.collect_speed > 0
    for one, other in zip(our_hook, hook, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert (ours.collect_step, ours.collect_episode) == (stock.collect_step, stock.collect_episode)


def test_lengths_are_right_when_the_buffer_is_shorter_than_an_episode():
    _, _, (stats,), _ = collected(LeanCollector, "cartpole", 1, [{"n_step": 200}], 4)
    _, _, (expected,), _ = collected(Collector, "cartpole", 1, [{"n_step": 200}], 400)
    np.testing.assert_array_equal(stats.lens, expected.lens)
    assert stats.lens.max() > 4


def test_neither_info_nor_a_finished_episode_is_kept():
    class NoReadBuffer(VectorReplayBuffer):
        def __getitem__(self, index):
            raise AssertionError("read back")

    envs = DummyVectorEnv([Walk])
    buffer = NoReadBuffer(50, 1)
    collector = LeanCollector(make_policy(Walk()), envs, buffer)
    collector.reset()
    assert collector.collect(n_step=40).n_collected_episodes > 0
    assert set(buffer._meta.get_keys()).isdisjoint({"info", "policy"})


def test_evaluation_without_a_buffer_stores_nothing():
    envs = DummyVectorEnv([Walk, Walk])
    collector = LeanCollector(make_policy(Walk()), envs)
    collector.reset()
    assert collector.collect(n_episode=5).n_collected_episodes == 5
    assert len(collector.buffer) == 0


def test_collecting_before_a_reset_is_a_clear_error():
    collector = LeanCollector(make_policy(Walk()), DummyVectorEnv([Walk]))
    with pytest.raises(ValueError, match="call reset"):
        collector.collect(n_step=1)
