"""The paper in small: one mini-batch of memory suffices with consolidation, not without."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.data import VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffpolicyTrainer

from medqn_tianshou import (
    FastMeDQNPolicy,
    LinearSchedule,
    MLPQNetwork,
    UniformStateSampler,
)
from medqn_tianshou.collecting.lean import LeanCollector
from medqn_tianshou.replay.tianshou_buffers import seed_replay_buffer

pytestmark = pytest.mark.slow

BATCH, ROOMS, PHASE, STEPS = 32, 4, 200, 1600


class Rooms(gym.Env):
    """A position in one of four rooms in a row; the rewarded action alternates between them.

    The agent spends long phases in one room, as an agent that improves spends its time in ever new
    parts of its world. So the newest transitions show one room only.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, phase):
        self.phase = phase
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room = self.steps // self.phase % ROOMS
        self.position = np.float32(self.np_random.uniform(self.room, self.room + 1) - ROOMS / 2)
        return np.array([self.position]), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.position]), float(action == self.room % 2), True, False, {}


def evaluation_return_after_training(seed, *, coef, buffer_size=BATCH):
    torch.manual_seed(seed)
    np.random.seed(seed)
    train_envs = DummyVectorEnv([lambda: Rooms(PHASE)])
    test_envs = DummyVectorEnv([lambda: Rooms(1)])
    train_envs.seed(seed)
    test_envs.seed(seed + 1000)
    model = MLPQNetwork(observation_shape=(1,), action_count=2)
    policy = FastMeDQNPolicy(
        model=model,
        optim=torch.optim.Adam(model.parameters(), lr=3e-3),
        action_space=spaces.Discrete(2),
        target_update_freq=50,
        state_sampler=UniformStateSampler(observation_space=Rooms.observation_space, seed=seed),
        consolidation_coef=LinearSchedule(0.01 if coef else 0.0, coef, STEPS),
    )
    buffer = VectorReplayBuffer(buffer_size, 1)
    seed_replay_buffer(buffer, seed)
    train_collector = LeanCollector(
        policy, train_envs, buffer, exploration_noise=True, on_step_hook=policy.observe_step
    )
    test_collector = LeanCollector(policy, test_envs, exploration_noise=True)
    train_collector.reset()
    policy.set_eps(0.2)
    train_collector.collect(n_step=BATCH)

    def train_fn(epoch, env_step):
        policy.set_eps(0.2)
        policy.set_env_step(env_step)

    result = OffpolicyTrainer(
        policy=policy,
        train_collector=train_collector,
        test_collector=test_collector,
        max_epoch=1,
        step_per_epoch=STEPS,
        step_per_collect=1,
        update_per_step=1.0,
        episode_per_test=100,
        batch_size=0 if buffer_size == BATCH else BATCH,  # 0: all of it, as MeDQN(U) does
        train_fn=train_fn,
        test_fn=lambda epoch, env_step: policy.set_eps(0.0),
        verbose=False,
        show_progress=False,
    )
    stats = [epoch.test_collect_stat for epoch in result]
    return stats[-1].returns_stat.mean


def test_one_batch_of_memory_is_enough_with_consolidation_and_not_without():
    seeds = range(3)
    medqn = [evaluation_return_after_training(seed, coef=4.0) for seed in seeds]
    dqn = [evaluation_return_after_training(seed, coef=0.0) for seed in seeds]
    assert min(medqn) > 0.85
    assert max(dqn) < 0.75
    # It is the memory that DQN lacks: with all transitions kept it learns, too.
    assert evaluation_return_after_training(0, coef=0.0, buffer_size=2 * STEPS) > 0.85
