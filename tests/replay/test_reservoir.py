"""The reservoir: a uniform sample of every state ever seen, within its bytes, exactly resumed."""

import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.data import Batch

from medqn_tianshou import MLPQNetwork, ReservoirStateSampler
from medqn_tianshou.host.api import Agent, make_agent

LINE = spaces.Box(-np.inf, np.inf, (1,), np.float32)
FRAMES = spaces.Box(0, 255, (4, 21, 21), np.uint8)
CELLS = spaces.MultiBinary((3, 5, 5))
CELLS.dtype = np.dtype(np.bool_)
SPACES = pytest.mark.parametrize("space", [LINE, FRAMES, CELLS, spaces.Discrete(7)], ids=str)


def states_of(space, count, seed=0):
    generator = np.random.default_rng(seed)
    shape = (count, *space.shape)
    if space.dtype == np.uint8:  # mostly constant, as frames are
        return (generator.random(shape) < 0.02).astype(np.uint8) * 200
    return generator.integers(0, 2, shape).astype(space.dtype)


def test_every_state_ever_seen_is_kept_with_the_same_probability():
    seen, capacity, repeats = 40, 5, 1_500
    counts = np.zeros(seen)
    for seed in range(repeats):
        sampler = ReservoirStateSampler(observation_space=LINE, capacity=capacity, seed=seed)
        for start in range(0, seen, 4):  # as from four environments
            sampler.observe(np.arange(start, start + 4, dtype=np.float32)[:, None])
        kept = np.unique(sampler.sample(400))
        assert len(kept) == capacity  # each of them sampled, none twice in the reservoir
        counts[kept.astype(int)] += 1
    # Counts of a sample without replacement vary less than the multinomial by this factor.
    expected = repeats * capacity / seen
    chi_square = ((counts - expected) ** 2 / expected).sum() / (1 - capacity / seen)
    chi_square *= (seen - 1) / seen
    assert 15.7 < chi_square < 75.0  # 0.1 % below and above, 39 degrees of freedom: 16.3, 72.1


def test_draws_from_the_reservoir_are_uniform():
    sampler = ReservoirStateSampler(observation_space=LINE, capacity=8, seed=0)
    sampler.observe(np.arange(8, dtype=np.float32)[:, None])
    counts = np.unique(sampler.sample(8_000), return_counts=True)[1]
    assert ((counts - 1_000) ** 2 / 1_000).sum() < 24.3  # 0.1 %, 7 degrees of freedom


@SPACES
def test_states_come_back_as_they_were(space):
    states = states_of(space, 300)
    sampler = ReservoirStateSampler(observation_space=space, capacity=64, seed=0)
    for state in states:
        sampler.observe(state)
    drawn = sampler.sample(50)
    assert drawn.dtype == states.dtype
    assert drawn.shape == (50, *space.shape)
    known = {state.tobytes() for state in states}
    assert all(state.tobytes() in known for state in drawn)
    assert (len(sampler), sampler.seen) == (64, 300)


@SPACES
def test_a_restored_reservoir_goes_on_in_the_same_way(space):
    one, other = (
        ReservoirStateSampler(observation_space=space, capacity=20, max_bytes=20_000, seed=seed)
        for seed in (1, 2)
    )
    one.observe(states_of(space, 30))
    other.observe(states_of(space, 7, seed=5))
    other.load_state_dict(one.state_dict())
    for sampler in (one, other):
        sampler.observe(states_of(space, 30, seed=3))
    np.testing.assert_array_equal(one.sample(40), other.sample(40))
    assert (one.seen, one.nbytes, one.capacity) == (other.seen, other.nbytes, other.capacity)


@pytest.mark.parametrize("space", [LINE, FRAMES, CELLS], ids=str)
def test_the_byte_cap_holds_at_every_step_and_keeps_old_and_new(space):
    cap = 12_000
    sampler = ReservoirStateSampler(observation_space=space, capacity=5_000, max_bytes=cap, seed=0)
    for state in states_of(space, 6_000):
        sampler.observe(state)
        assert sampler.nbytes <= cap
    assert 20 < len(sampler) == sampler.capacity < 5_000


def test_a_capped_reservoir_is_still_a_sample_of_the_whole_past():
    kept = np.zeros(4)
    for seed in range(60):
        sampler = ReservoirStateSampler(
            observation_space=FRAMES, capacity=1_000, max_bytes=4_000, seed=seed
        )
        for number, state in enumerate(states_of(FRAMES, 200)):
            state[0, 0, :2] = 1, number  # which state it is
            sampler.observe(state)
        numbers = np.unique(sampler.sample(300)[:, 0, 0, 1])
        kept += np.histogram(numbers, bins=4, range=(0, 200))[0]
    assert kept.min() > 0.8 * kept.mean()
    assert kept.max() < 1.2 * kept.mean()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"states": np.zeros(3, np.uint8)}, "truncated"),
        ({"seen": 3}, "invalid"),
        ({"capacity": 21}, "do not fit"),
        ({"dtype": "|O"}, "do not fit"),
        ({"sizes": np.array([10**9])}, "truncated|invalid"),
    ],
)
@pytest.mark.parametrize("space", [LINE, FRAMES], ids=str)
def test_a_state_that_is_not_sound_is_refused(space, change, error):
    sampler = ReservoirStateSampler(observation_space=space, capacity=20, seed=0)
    sampler.observe(states_of(space, 30))
    with pytest.raises(ValueError, match=error):
        sampler.load_state_dict({**sampler.state_dict(), **change})


def test_bad_arguments_are_named():
    for options, error in (
        ({"capacity": 0}, "capacity=0 must be at least 1"),
        ({"capacity": 1, "max_bytes": 10}, "max_bytes=10 is too small for one state; use at least"),
    ):
        with pytest.raises(ValueError, match=error):
            ReservoirStateSampler(observation_space=LINE, **options)
    with pytest.raises(ValueError, match="must have a shape"):
        ReservoirStateSampler(observation_space=spaces.Dict({}), capacity=1)
    sampler = ReservoirStateSampler(observation_space=LINE, capacity=1)
    with pytest.raises(ValueError, match="no state was observed yet"):
        sampler.sample(1)
    with pytest.raises(ValueError, match="does not match"):
        sampler.observe(np.zeros((2, 2)))


def test_the_file_of_a_policy_leaves_the_states_out():
    network = MLPQNetwork(observation_shape=(1,), action_count=2)
    sampler = ReservoirStateSampler(observation_space=LINE, capacity=5, seed=0)
    policy = make_agent(
        Agent,
        model=network,
        optimizer=(torch.optim.SGD, {"lr": 0.1}),
        action_space=spaces.Discrete(2),
        observation_space=LINE,
        gamma=0.9,
        n_step=1,
        huber=False,
        target_update_freq=1,
        state_sampler=sampler,
    )
    policy.observe_step(Batch(), Batch(obs=np.ones((3, 1), np.float32)))
    assert "sampler_state" not in json.loads(bytes(policy.get_extra_state().tolist()))
    policy.set_gradient_steps(7)
    policy.load_state_dict(policy.state_dict())
    assert (policy.gradient_steps, len(sampler)) == (7, 3)
