"""A state dict of the policy is enough to go on: networks, gradient steps, and the sampler."""

import copy
import io

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import ENVS, OBS_SIZE, assert_same_parameters, build, filled, update
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.policy import DQNPolicy

from medqn_tianshou import (
    FastMeDQNPolicy,
    MeDQNPolicy,
    MixedStateSampler,
    RealStateSampler,
    ReservoirStateSampler,
    UniformStateSampler,
)
from medqn_tianshou.algorithm.consolidation import EXTRA_STATE

SPACE = spaces.Box(-np.inf, np.inf, (OBS_SIZE,), np.float32)
SAMPLERS = {
    "real": lambda seed: RealStateSampler(seed=seed),
    "uniform": lambda seed: UniformStateSampler(observation_space=SPACE, seed=seed),
    "mixed": lambda seed: MixedStateSampler(
        real=RealStateSampler(seed=seed),
        uniform=UniformStateSampler(observation_space=SPACE, seed=seed + 1),
        seed=seed + 2,
    ),
}


def trained(policy_class, sampler="uniform"):
    policy = build(policy_class, state_sampler=SAMPLERS[sampler](1), consolidation_epochs=2)
    buffer = filled(VectorReplayBuffer(90, ENVS))
    policy.observe_step(None, Batch(obs=buffer.obs))
    update(policy, buffer, count=5)
    return policy, buffer


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_policy_goes_on_from_a_saved_state_dict(policy_class, sampler):
    policy, buffer = trained(policy_class, sampler)
    other = build(policy_class, state_sampler=SAMPLERS[sampler](9), consolidation_epochs=2)
    other.load_state_dict(through_a_file(policy.state_dict()))
    other.optim.load_state_dict(copy.deepcopy(policy.optim.state_dict()))
    assert other.gradient_steps == policy.gradient_steps == 10
    same = copy.deepcopy(buffer)
    # Through updates of the target network, which come every 7 gradient steps.
    expected = [stats.consolidation_loss for stats in update(policy, buffer, count=9)]
    assert [stats.consolidation_loss for stats in update(other, same, count=9)] == expected
    assert_same_parameters(other, policy)


@pytest.mark.parametrize(
    ("space", "states"),
    [
        (SPACE, np.array([[-0.1, 1e-30, np.nan, 3], [0.7, 1e30, 2, np.inf]], np.float32)),
        (spaces.MultiBinary(3), np.array([[0, 1, 0], [1, 1, 0]], np.int8)),
        (spaces.Box(0, 1, (2, 2), np.bool_), np.array([[[True, False], [True, True]]])),
        (spaces.Box(-(2**62), 2**62, (1,), np.int64), np.array([[2**60 + 1], [-(2**60)]])),
        (spaces.MultiBinary(3), np.array([[True, False, True]])),
        (SPACE, np.array([[1, 2, 3, 4], [4, 3, 2, 1]])),
    ],
    ids=["floats", "bits", "flags", "wide integers", "flags as bits", "integers as floats"],
)
def test_bounds_are_restored_exactly(space, states):
    one, other = (
        build(MeDQNPolicy, state_sampler=UniformStateSampler(observation_space=space, seed=seed))
        for seed in (1, 2)
    )
    one.state_sampler.observe(states)
    other.load_state_dict(through_a_file(one.state_dict()))
    assert_bounds_equal(one, other)
    np.testing.assert_array_equal(one.state_sampler.sample(9), other.state_sampler.sample(9))


def test_a_reservoir_within_a_mixed_sampler_is_not_saved_with_the_policy():
    def make():
        reservoir = ReservoirStateSampler(observation_space=SPACE, capacity=5, seed=2)
        sampler = MixedStateSampler(real=RealStateSampler(seed=0), uniform=reservoir, seed=1)
        return build(MeDQNPolicy, state_sampler=sampler)

    policy, other = make(), make()
    policy.state_sampler.observe(np.zeros((3, *SPACE.shape), np.float32))
    other.load_state_dict(through_a_file(policy.state_dict()))
    assert len(other.state_sampler.uniform) == 0
    other.state_sampler.load_state_dict(policy.state_sampler.state_dict())
    assert len(other.state_sampler.uniform) == 3


def assert_bounds_equal(one, other):
    for name, value in one.state_sampler.bounds.state_dict().items():
        np.testing.assert_array_equal(other.state_sampler.bounds.state_dict()[name], value)


def test_every_value_of_a_state_dict_is_a_tensor():
    policy, _ = trained(MeDQNPolicy)
    assert all(isinstance(value, torch.Tensor) for value in policy.state_dict().values())


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
def test_state_dicts_of_dqn_and_of_earlier_versions_load_and_change_only_the_networks(policy_class):
    policy, _ = trained(policy_class)
    before = copy.deepcopy(policy.state_sampler.state_dict())
    dqn = build(DQNPolicy)
    policy.load_state_dict(dqn.state_dict())
    assert_same_parameters(policy, dqn)
    assert policy.gradient_steps == 10
    np.testing.assert_equal(policy.state_sampler.state_dict(), before)
    with pytest.raises(RuntimeError, match=r"Missing key.*model\.advantage"):
        policy.load_state_dict({})


def test_dqn_loads_the_networks_of_medqn():
    policy, _ = trained(MeDQNPolicy)
    dqn = build(DQNPolicy)
    found = dqn.load_state_dict(policy.state_dict(), strict=False)
    assert (found.missing_keys, found.unexpected_keys) == ([], [EXTRA_STATE])
    assert_same_parameters(dqn, policy)


def test_a_sampler_of_another_kind_keeps_its_own_state():
    policy, _ = trained(MeDQNPolicy, "real")
    other = build(MeDQNPolicy, state_sampler=SAMPLERS["uniform"](1))
    other.state_sampler.observe(np.ones(OBS_SIZE, np.float32))
    before = copy.deepcopy(other.state_sampler.state_dict())
    other.load_state_dict(policy.state_dict())
    assert other.gradient_steps == 10
    np.testing.assert_equal(other.state_sampler.state_dict(), before)
