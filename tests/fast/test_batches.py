"""Compiled updates that read a ring where it stores its transitions give the same numbers."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import assert_same_parameters, update
from small_networks import ACTIONS, make_observations, make_policy
from tianshou.data import Batch

from medqn_tianshou import FastMeDQNPolicy, MeDQNPolicy, RealStateSampler, UniformStateSampler
from medqn_tianshou.algorithm.bounds import StateBounds
from medqn_tianshou.fast import updates
from medqn_tianshou.fast.batches import StoredBatches
from medqn_tianshou.replay.ring import RingReplayBuffer

SPACES = {
    "vector": spaces.Box(-9, 9, (4,), np.float32),
    "grid": spaces.MultiBinary((4, 10, 10)),
}


def make_ring(name, size=40, steps=55):
    generator = np.random.default_rng(5)
    ring = RingReplayBuffer(size, 1)
    for step in range(steps):
        ring.add(
            Batch(
                obs=make_observations(name, 1, generator),
                obs_next=make_observations(name, 1, generator),
                act=generator.integers(ACTIONS, size=1),
                rew=generator.normal(size=1) * 3,
                terminated=np.array([step % 11 == 10]),
                truncated=np.array([step % 17 == 16]),
                done=np.array([step % 11 == 10 or step % 17 == 16]),
            )
        )
    return ring


def make_learner(name, sampling, **options):
    policy = make_policy(FastMeDQNPolicy, name, consolidation_epochs=2, **options)
    if sampling == "real":
        policy.state_sampler = RealStateSampler(seed=2)
    else:
        sampler = policy.state_sampler = UniformStateSampler(observation_space=SPACES[name], seed=2)
        sampler.observe(make_observations(name, 20, np.random.default_rng(1)))
    return policy


class Drawn:
    """Counts the batches that were read from their storage."""

    def __init__(self, monkeypatch, *, allow=True):
        self.count = 0
        draw = StoredBatches.draw

        def counted(*args):
            batch = draw(*args) if allow else None
            self.count += batch is not None
            return batch

        monkeypatch.setattr(StoredBatches, "draw", counted)


@pytest.mark.parametrize(
    ("name", "sampling", "options"),
    [
        ("vector", "uniform", {}),
        ("vector", "uniform", {"consolidation_batch_size": 5}),
        ("vector", "real", {}),
        ("vector", "real", {"consolidation_coef": 0.0}),
        pytest.param("grid", "uniform", {}, marks=pytest.mark.slow),
        pytest.param("grid", "real", {}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("size", [0, 8])
def test_parameters_and_random_numbers_are_those_of_a_copied_batch(
    name, sampling, options, size, monkeypatch
):
    parameters, generators = [], []
    for allow in (True, False):
        policy, ring = make_learner(name, sampling, **options), make_ring(name)
        with monkeypatch.context() as patch:
            drawn = Drawn(patch, allow=allow)
            update(policy, ring, 5, size)
            assert drawn.count == (5 if allow else 0)
        parameters.append(torch.cat([p.detach().flatten() for p in policy.parameters()]))
        generators.append(policy.state_sampler.state_dict()["generator"])
    assert torch.equal(*parameters)
    assert generators[0] == generators[1]


@pytest.mark.slow
def test_flags_in_a_space_of_floats_are_sampled_as_by_the_plain_code():
    policies = []
    for policy_class in (FastMeDQNPolicy, MeDQNPolicy):
        policy = make_policy(policy_class, "grid", consolidation_epochs=2)
        policy.consolidation_batch_size = 5
        space = spaces.Box(0, 1, (4, 10, 10), np.float32)
        sampler = policy.state_sampler = UniformStateSampler(observation_space=space, seed=2)
        sampler.observe(make_observations("grid", 20, np.random.default_rng(1)))
        update(policy, make_ring("grid"), 3)
        policies.append(policy)
    one, other = (policy.state_sampler.state_dict() for policy in policies)
    assert one["generator"] == other["generator"]
    assert_same_parameters(*policies, tolerance=1e-5)


def test_a_storage_that_is_replaced_is_read_anew(monkeypatch):
    parameters = []
    for allow in (True, False):
        policy, ring = make_learner("vector", "real"), make_ring("vector")
        with monkeypatch.context() as patch:
            Drawn(patch, allow=allow)
            update(policy, ring)
            ring._meta.__dict__["obs"] = ring._meta.obs * 2
            update(policy, ring)
        parameters.append(torch.cat([p.detach().flatten() for p in policy.parameters()]))
    assert torch.equal(*parameters)


@pytest.mark.parametrize("change", ["observations", "n-step", "sampler"])
def test_what_it_does_not_know_is_read_by_others(change, monkeypatch):
    ring = make_ring("vector")
    policy = make_learner("vector", "real", estimation_step=2 if change == "n-step" else 1)
    if change == "observations":
        for name in ("obs", "obs_next"):
            ring._meta.__dict__[name] = ring._meta.__dict__[name].astype(np.float64)
    if change == "sampler":
        policy.state_sampler.sample = lambda size, buffer: np.zeros((size, 4), np.float32)
    drawn = Drawn(monkeypatch)
    update(policy, ring)
    assert drawn.count == 0
    assert policy.gradient_steps == 2


def test_a_copy_holds_no_transitions():
    policy, ring = make_learner("vector", "uniform"), make_ring("vector")
    update(policy, ring)
    assert policy._stored._arrays
    assert not pickle.loads(pickle.dumps(policy._stored))._arrays  # noqa: S301
    assert not copy.deepcopy(policy)._stored._arrays


def test_states_between_bounds_are_those_of_the_bounds():
    bounds = StateBounds(SPACES["vector"])
    bounds.update(np.array([[-1.1, 0.3, 5, 1e-30], [0.7, 0.3, 9, 2e30]], np.float32))
    states = np.empty((500, 4), np.float32)
    shares = np.random.default_rng(3).random((500, 4))
    assert updates.between(shares, bounds.low, bounds.high, states)
    np.testing.assert_array_equal(states, bounds.sample(500, np.random.default_rng(3)))


def test_without_a_state_the_samplers_own_error_is_raised():
    policy = make_learner("vector", "uniform")
    policy.state_sampler = UniformStateSampler(observation_space=SPACES["vector"])
    with pytest.raises(ValueError, match="no state was observed"):
        update(policy, make_ring("vector"))


@pytest.mark.parametrize("kind", [updates.ADAM, updates.RMSPROP, updates.CENTERED_RMSPROP])
def test_moments_of_a_dead_unit_end_at_zero(kind):
    """Numbers below the normal ones take a CPU ten times as long."""
    params, grads, first, second = (np.zeros(8, np.float32) for _ in range(4))
    first[:], second[:] = 1e-37, 1e-37
    second[0] = np.nan
    for step in range(1, 200):
        updates.optimize(kind, params, grads, first, second, step, (1e-3, 0.9, 0.95, 1e-3))
    used = first[1:] if kind == updates.ADAM else second[1:]
    assert (used == 0).all()
    assert np.isnan(second[0])
