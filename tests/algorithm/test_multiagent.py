"""MeDQN for each agent of Tianshou's MultiAgentPolicyManager."""

import copy
import gc
import pickle
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from learners import ACTIONS, OBS_SIZE, assert_same_parameters, build, update
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.policy import DQNPolicy, MultiAgentPolicyManager

from medqn_tianshou import FastMeDQNPolicy, MeDQNPolicy, RealStateSampler

AGENTS = ("one", "other")


def make_manager(policy_class, **options):
    """Return a manager for what it asks of a PettingZoo environment."""
    env = SimpleNamespace(
        agents=list(AGENTS),
        agent_idx={agent: i for i, agent in enumerate(AGENTS)},
        action_space=spaces.Discrete(ACTIONS),
        observation_space=spaces.Box(-1, 1, (OBS_SIZE,), np.float32),
    )
    return MultiAgentPolicyManager(
        policies=[build(policy_class, **options) for _ in AGENTS], env=env
    )


def played(steps=200):
    """Return the transitions of agents that take turns."""
    rng = np.random.default_rng(0)
    buffer = VectorReplayBuffer(2 * steps, 2)
    agents = np.array(AGENTS)
    for step in range(steps):
        obs, obs_next = (
            Batch(
                obs=rng.normal(size=(2, OBS_SIZE)).astype(np.float32),
                agent_id=agents[[when % 2, 1 - when % 2]],
            )
            for when in (step, step + 1)
        )
        ends = np.full(2, step % 10 == 9)
        buffer.add(
            Batch(
                obs=obs,
                obs_next=obs_next,
                act=rng.integers(ACTIONS, size=2),
                rew=rng.normal(size=(2, len(AGENTS))),
                terminated=ends,
                truncated=np.zeros(2, bool),
            )
        )
    return buffer


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
def test_policies_of_a_manager_consolidate_and_do_not_keep_the_buffer(policy_class):
    manager = make_manager(policy_class, state_sampler=RealStateSampler(seed=1))
    empty = len(pickle.dumps(manager))
    buffer = played()
    for stats in update(manager, buffer, count=10):
        for agent in AGENTS:
            assert stats.get_loss_stats_dict()[f"{agent}/consolidation_coef"] == 1.0
    assert all(policy.gradient_steps == 10 for policy in manager.policies.values())
    for duplicate in (manager, copy.deepcopy(manager)):
        data = pickle.dumps(duplicate)
        assert b"ReplayBuffer" not in data
        # The rest are the moments of the optimizers and gradients, far below the buffer's size.
        assert len(data) < empty + len(pickle.dumps(buffer)) // 2
    update(copy.deepcopy(manager), buffer, count=3)
    reference = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert reference() is None, "the policies keep the buffer alive"


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
def test_without_consolidation_a_manager_learns_as_with_dqn(policy_class):
    managers = [make_manager(DQNPolicy), make_manager(policy_class, consolidation_coef=0.0)]
    for manager in managers:
        update(manager, played(), count=20)
    for agent in AGENTS:
        dqn, ours = (manager.policies[agent] for manager in managers)
        # Compiled code lays the weights out in another order, in which torch rounds otherwise.
        assert_same_parameters(ours, dqn, 0.0 if policy_class is MeDQNPolicy else 1e-6)
