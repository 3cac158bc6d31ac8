"""Tianshou's own DQN on Atari; only its replay buffer is ours. docs/tutorial.md explains it."""

import torch
from tianshou.data import Collector
from tianshou.policy import DQNPolicy
from tianshou.trainer import OffpolicyTrainer

from medqn_tianshou import CompactVectorReplayBuffer, NatureQNetwork
from medqn_tianshou.envs.atari import make_atari_envs

STEPS = 2_000  # a first impression; a full run takes 10 million or more
BUFFER_SIZE = 1_000_000

envs = make_atari_envs(task="QbertNoFrameskip-v4", num_envs=1, seed=0, training=True)
action_space = envs.action_space[0]
model = NatureQNetwork(observation_shape=(4, 84, 84), action_count=action_space.n)
policy = DQNPolicy(
    model=model,
    optim=torch.optim.Adam(model.parameters(), lr=1e-4),
    action_space=action_space,
    target_update_freq=500,
)
policy.set_eps(0.1)

buffer = CompactVectorReplayBuffer(
    BUFFER_SIZE, buffer_num=1, stack_num=4, save_only_last_obs=True, random_seed=0
)

collector = Collector(policy, envs, buffer, exploration_noise=True)
collector.reset()
collector.collect(n_step=1_000, random=True)
OffpolicyTrainer(
    policy,
    max_epoch=1,
    batch_size=32,
    train_collector=collector,
    step_per_epoch=STEPS,
    step_per_collect=4,
    update_per_step=0.25,
    episode_per_test=1,
    show_progress=False,
).run(reset_collectors=False)

per_transition = buffer.nbytes / len(buffer)
print(f"{len(buffer):,} transitions in {buffer.nbytes / 1e6:.2f} MB")
print(f"a full buffer at this rate: {per_transition * BUFFER_SIZE / 1e6:,.0f} MB")
print(f"the same frames in Tianshou's buffer: {84 * 84 * BUFFER_SIZE / 1e6:,.0f} MB")
