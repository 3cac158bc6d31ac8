"""Where nobody else changes a policy, it is inspected once, with the same results."""

import copy

import numpy as np
import pytest
from learners import ENVS, assert_same_parameters, build, filled, update
from tianshou.data import VectorReplayBuffer

from medqn_tianshou import FastMeDQNPolicy, RealStateSampler
from medqn_tianshou.fast.known import KnownNetwork

OBS = np.random.default_rng(0).normal(size=(1, 4)).astype(np.float32)


@pytest.fixture
def inspections(monkeypatch):
    """Count how often networks are inspected."""
    inspect = KnownNetwork.is_current.fget
    counted = []
    monkeypatch.setattr(
        KnownNetwork, "is_current", property(lambda known: counted.append(known) or inspect(known))
    )
    return counted


def make():
    return build(FastMeDQNPolicy, state_sampler=RealStateSampler(seed=1), consolidation_coef=0.5)


def train(policy, buffer):
    """Act and learn in turns; return the actions."""
    np.random.seed(0)
    actions = []
    for number in range(30):
        policy.set_eps(1 - number / 30)
        actions.append(policy.actor(explore=True)(OBS)[0])
        update(policy, buffer)
    policy.set_eps(0.0)
    return [*actions, policy.actor(explore=True)(OBS)[0], policy.actor(explore=False)(OBS)[0]]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_results_are_the_same_with_one_inspection(compiled, inspections):
    policies = [make(), make()]
    actions = []
    counts = []
    for policy, undisturbed in zip(policies, (True, False), strict=True):
        policy.compiled = compiled
        buffer = filled(VectorReplayBuffer(60, ENVS))
        inspections.clear()
        if undisturbed:
            with policy.undisturbed():
                actions.append(train(policy, buffer))
        else:
            actions.append(train(policy, buffer))
        counts.append(len(inspections))
    assert actions[0] == actions[1]
    assert len(set(actions[0])) > 1
    assert_same_parameters(*policies)
    if compiled:
        assert counts[0] < 10 < 60 < counts[1]


def test_a_hook_is_heard_again_afterwards():
    policy, buffer = make(), filled(VectorReplayBuffer(60, ENVS))
    heard = []
    with policy.undisturbed():
        update(policy, buffer)
        policy.actor(explore=False)(OBS)
    policy.model.register_forward_hook(lambda *_: heard.append(1))
    update(policy, buffer)
    learning = len(heard)
    policy.actor(explore=False)(OBS)
    assert len(heard) > learning > 0


def test_the_end_of_the_context_frees_the_buffer_after_an_error_too():
    policy, buffer = make(), filled(VectorReplayBuffer(60, ENVS))

    def fail():
        with policy.undisturbed():
            update(policy, buffer)
            assert policy._undisturbed.update.buffer is buffer
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert policy._undisturbed.update is None
    assert not policy._undisturbed.is_on


def test_another_buffer_is_inspected():
    with (policy := make()).undisturbed():
        update(policy, filled(VectorReplayBuffer(60, ENVS)))
        other = filled(VectorReplayBuffer(60, ENVS), seed=3)
        update(policy, other)
        assert policy._undisturbed.update.buffer is other


def test_a_copy_made_within_is_inspected_by_itself():
    policy = make()
    with policy.undisturbed():
        update(policy, filled(VectorReplayBuffer(60, ENVS)))
        twin = copy.deepcopy(policy)
        assert not twin._undisturbed.is_on
        assert twin._undisturbed.update is None
