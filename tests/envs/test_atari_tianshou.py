"""Tianshou's collectors and buffers on the Atari environments."""

from typing import Any

import numpy as np
import pytest
import torch
from atari_play import atari, both_backends
from tianshou.data import Batch, Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.env import BaseVectorEnv
from tianshou.policy import DQNPolicy

pytestmark = pytest.mark.slow

pytest.importorskip("ale_py")
pytest.importorskip("envpool")


class RandomPolicy(DQNPolicy):
    """A policy that acts randomly, remembers what it was shown, and never learns."""

    def __init__(self, envs: BaseVectorEnv) -> None:
        model = torch.nn.Linear(1, 1)
        super().__init__(model=model, optim=None, action_space=envs.action_space[0])
        self.seen: list[np.ndarray] = []
        self.actions = np.random.default_rng(0)

    def _compile(self) -> None:
        """Skip five seconds of compiling what is not used here."""

    def forward(self, batch: Batch, state: Any = None, **kwargs: Any) -> Batch:
        self.seen.append(batch.obs.copy())
        return Batch(act=self.actions.integers(self.action_space.n, size=len(batch.obs)))


class PlainBuffer(VectorReplayBuffer):
    """A buffer that is only filled."""

    def _compile(self) -> None:
        """Skip five seconds of compiling what is not used here."""


@both_backends
def test_a_buffer_of_newest_frames_rebuilds_what_the_policy_saw(backend: str) -> None:
    with atari(backend=backend, noop_max=30) as envs:
        policy = RandomPolicy(envs)
        buffer = ReplayBuffer(150, stack_num=4, save_only_last_obs=True, ignore_obs_next=True)
        collector = Collector(policy, envs, buffer)
        collector.reset()
        stats = collector.collect(n_step=150)
    assert stats.n_collected_episodes > 1  # lost lives
    np.testing.assert_array_equal(buffer[np.arange(150)].obs, np.concatenate(policy.seen))


@both_backends
def test_tianshou_collects_from_several_environments(backend: str) -> None:
    with atari(backend=backend, num_envs=3) as envs:
        collector = Collector(RandomPolicy(envs), envs, PlainBuffer(180, 3))
        collector.reset()
        collector.collect(n_step=90)
        collector.collect(n_step=90, random=True)
    buffer = collector.buffer
    assert len(buffer) == 180
    assert buffer.terminated.sum() >= 3
    assert set(buffer.info.lives) <= {0, 1, 2, 3, 4, 5}
    np.testing.assert_array_equal(np.sign(buffer.info.reward), buffer.rew)


@both_backends
def test_tianshou_evaluates_whole_games(backend: str) -> None:
    with atari(backend=backend, num_envs=2, training=False, noop_max=30) as envs:
        buffer = PlainBuffer(1000, 2, save_only_last_obs=True)
        collector = Collector(RandomPolicy(envs), envs, buffer)
        stats = collector.collect(n_episode=3, reset_before_collect=True)
    assert stats.n_collected_episodes == 3
    assert stats.lens.min() > 100  # a life of random play is some 25 steps
