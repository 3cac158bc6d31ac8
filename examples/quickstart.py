"""MeDQN(U) on CartPole with a replay buffer of 32 transitions: the README's twenty lines."""

import gymnasium as gym
import torch
from tianshou.data import VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffpolicyTrainer
from medqn_tianshou import FastMeDQNPolicy, LeanCollector, MLPQNetwork, UniformStateSampler

env = gym.make("CartPole-v1")
model = MLPQNetwork(observation_shape=env.observation_space.shape, action_count=2)
policy = FastMeDQNPolicy(  # DQNPolicy plus a state sampler and a weight
    model=model, optim=torch.optim.Adam(model.parameters(), lr=1e-3),
    action_space=env.action_space, target_update_freq=100, consolidation_coef=0.5,
    state_sampler=UniformStateSampler(observation_space=env.observation_space, seed=0))
policy.set_eps(0.1)
collector = LeanCollector(policy, DummyVectorEnv([lambda: env]), VectorReplayBuffer(32, 1),
                          exploration_noise=True, on_step_hook=policy.observe_step)
collector.collect(n_step=32, random=True, reset_before_collect=True)  # the buffer stores 32 transitions
OffpolicyTrainer(policy, max_epoch=1, step_per_epoch=8_000, step_per_collect=1, episode_per_test=1, batch_size=0,
                 train_collector=collector, verbose=False, show_progress=False).run(reset_collectors=False)
print("mean return of 10 episodes:", collector.collect(n_episode=10, reset_before_collect=True).returns.mean())
