"""Without the room of the fast paths everything still trains, slower."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

SCRIPT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("medqn_tianshou.fast"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())

import gymnasium as gym
import torch
from tianshou.data import VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffpolicyTrainer

from medqn_tianshou import (
    CompactVectorReplayBuffer, LeanCollector, MeDQNPolicy, MLPQNetwork, RealStateSampler,
)

env = gym.make("CartPole-v1")
torch.manual_seed(0)
model = MLPQNetwork(observation_shape=env.observation_space.shape, action_count=2)
start = [parameter.detach().clone() for parameter in model.parameters()]
policy = MeDQNPolicy(
    model=model, optim=torch.optim.Adam(model.parameters()), action_space=env.action_space,
    target_update_freq=20, state_sampler=RealStateSampler(seed=0), consolidation_epochs=2,
)
policy.set_eps(0.5)
collector = LeanCollector(
    policy, DummyVectorEnv([lambda: env]), CompactVectorReplayBuffer(500, 1, random_seed=0),
    exploration_noise=True,
)
collector.reset()
collector.collect(n_step=50)
OffpolicyTrainer(
    policy=policy, train_collector=collector, max_epoch=1, step_per_epoch=100, step_per_collect=10,
    update_per_step=0.1, episode_per_test=1, batch_size=16, show_progress=False, verbose=False,
).run()
assert policy.gradient_steps == 20
assert all(not torch.equal(one, other) for one, other in zip(start, model.parameters()))
assert not any(name.startswith("medqn_tianshou.fast") for name in sys.modules)
print("trained")
"""


def test_a_plain_policy_trains_where_the_fast_paths_cannot_be_imported():
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300
    )
    assert result.stdout == "trained\n", result.stderr
