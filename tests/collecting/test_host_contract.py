"""LeanCollector with what Tianshou's other policies, environments and hooks do."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.policy import BasePolicy

from medqn_tianshou import CompactVectorReplayBuffer
from medqn_tianshou.collecting.lean import LeanCollector

COLLECTORS = [Collector, LeanCollector]


class Line(gym.Env):
    """Ends after five steps; the last observation is the last action."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)

    def __init__(self, action_space=None, reward=1.0):
        self.action_space = action_space or spaces.Discrete(3)
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        obs = np.full(1, np.ravel(action)[0], np.float32)
        return obs, self.reward, self.steps == 5, False, {"steps": self.steps}


class Fixed(BasePolicy):
    """Always returns one action."""

    def __init__(self, action_space, action, state=None):
        super().__init__(
            action_space=action_space, action_scaling=isinstance(action_space, spaces.Box)
        )
        self.action, self.hidden = action, state

    def forward(self, batch, state=None, **kwargs):
        return Batch(act=self.action, state=self.hidden)

    def learn(self, batch, *args, **kwargs):
        raise NotImplementedError


def collect(collector_class, policy, env, buffer=None, **options):
    envs = env if isinstance(env, gym.Env) else DummyVectorEnv([lambda: env()])
    buffer = VectorReplayBuffer(20, 1) if buffer is None else buffer
    collector = collector_class(policy, envs, buffer, **options)
    collector.reset()
    return collector.collect(n_step=12), buffer


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_the_environment_gets_the_mapped_action_and_the_buffer_the_policys(collector_class):
    space = spaces.Box(-2, 2, (1,), np.float32)
    policy = Fixed(space, np.full((1, 1), 1.0, np.float32))
    _, buffer = collect(collector_class, policy, lambda: Line(space))
    assert buffer.obs_next[:4, 0].tolist() == [2.0] * 4
    assert buffer.act[:4, 0].tolist() == [1.0] * 4


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_random_actions_are_stored_as_the_policy_would_have_them(collector_class):
    space = spaces.Box(-2, 2, (1,), np.float32)
    collector = collector_class(
        Fixed(space, None), DummyVectorEnv([lambda: Line(space)]), VectorReplayBuffer(20, 1)
    )
    collector.reset()
    collector.collect(n_step=4, random=True)
    act, played = collector.buffer.act[:4, 0], collector.buffer.obs_next[:4, 0]
    np.testing.assert_allclose(act * 2, played, rtol=1e-6, atol=1e-6)  # scaled in float32


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_actions_may_be_tensors(collector_class):
    policy = Fixed(spaces.Discrete(3), torch.tensor([2]))
    stats, buffer = collect(collector_class, policy, Line)
    assert buffer.act[:12].tolist() == [2] * 12
    assert stats.returns.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_rewards_may_be_vectors(collector_class):
    policy = Fixed(spaces.Discrete(3), np.array([1]))
    stats, buffer = collect(collector_class, policy, lambda: Line(reward=np.array([1.0, 2.0])))
    np.testing.assert_array_equal(stats.returns, [[5.0, 10.0]] * 2)
    np.testing.assert_array_equal(buffer.rew[:12], [[1.0, 2.0]] * 12)


@pytest.mark.filterwarnings("ignore:Single environment")
@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_a_single_environment_is_wrapped(collector_class):
    stats, _ = collect(collector_class, Fixed(spaces.Discrete(3), np.array([1])), Line())
    assert stats.n_collected_steps == 12


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_returns_follow_the_rewards_that_a_step_hook_sets(collector_class):
    def double(_, batch):
        batch.rew = batch.rew * 2

    policy = Fixed(spaces.Discrete(3), np.array([1]))
    stats, buffer = collect(collector_class, policy, Line, on_step_hook=double)
    assert stats.returns.tolist() == [10.0, 10.0]
    assert buffer.rew[:12].tolist() == [2.0] * 12


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_a_compact_buffer_that_keeps_info_gets_it(collector_class):
    buffer = CompactVectorReplayBuffer(20, 1, keep=("info",), random_seed=0)
    collect(collector_class, Fixed(spaces.Discrete(3), np.array([1])), Line, buffer)
    assert buffer.get(np.arange(7), "info").steps.tolist() == [1, 2, 3, 4, 5, 1, 2]


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_a_policy_may_have_a_network_named_actor(collector_class):
    """As those of PPO, A2C and SAC."""
    policy = Fixed(spaces.Discrete(3), np.array([2]))
    policy.actor = torch.nn.Linear(1, 3)
    _, buffer = collect(collector_class, policy, Line)
    assert buffer.act[:12].tolist() == [2] * 12


@pytest.mark.parametrize("collector_class", COLLECTORS)
def test_a_step_hook_sees_the_action_of_the_policy_and_that_of_the_environment(collector_class):
    space = spaces.Box(-2, 2, (1,), np.float32)
    policy, seen = Fixed(space, np.full((1, 1), 1.0, np.float32)), []
    collect(
        collector_class, policy, lambda: Line(space),
        on_step_hook=lambda actions, _: seen.append((actions.act, actions.act_normalized)),
    )  # fmt: skip
    assert [(float(act), float(mapped)) for act, mapped in seen] == [(1.0, 2.0)] * 12


def test_what_is_not_supported_is_refused_by_name():
    policy = Fixed(spaces.Discrete(3), np.array([1]), state=np.zeros((1, 2)))
    with pytest.raises(ValueError, match="policy=Fixed has a recurrent state"):
        collect(LeanCollector, policy, Line)
    waiting = DummyVectorEnv([Line, Line], wait_num=1)
    with pytest.raises(ValueError, match=r"env=DummyVectorEnv steps asynchronously.*AsyncColl"):
        LeanCollector(policy, waiting, VectorReplayBuffer(20, 2))
    collector = LeanCollector(policy, DummyVectorEnv([Line]), VectorReplayBuffer(20, 1))
    with pytest.raises(ValueError, match=r"no episode hooks.*on_episode_end"):
        collector.set_on_episode_done_hook(lambda batch: None)
    collector.set_on_episode_done_hook(None)
    keeping = CompactVectorReplayBuffer(20, 1, keep=("info", "policy"))
    with pytest.raises(ValueError, match=r"keep=\('policy',\)"):
        LeanCollector(policy, DummyVectorEnv([Line]), keeping)
