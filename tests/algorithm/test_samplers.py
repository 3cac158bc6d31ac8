"""The samplers and the bounds behind MeDQN(U)."""

import numpy as np
import pytest
from gymnasium import spaces
from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer

from medqn_tianshou import (
    MixedStateSampler,
    RealStateSampler,
    ReservoirStateSampler,
    StateSampler,
    UniformStateSampler,
)

PLANE = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class ObservationOnlyBuffer(VectorReplayBuffer):
    """A buffer that fails when anything but observations is read by index."""

    def get(self, index, key, *args, **kwargs):
        assert key == "obs", f"read {key!r}"
        return super().get(index, key, *args, **kwargs)

    def __getitem__(self, index):
        raise AssertionError("read whole transitions")

    def sample(self, batch_size):
        raise AssertionError("drew transitions")


def transition(obs_N):
    count = len(obs_N)
    return Batch(
        obs=np.asarray(obs_N),
        obs_next=np.full_like(obs_N, -1),
        act=np.full(count, -1),
        rew=np.full(count, -1.0),
        terminated=np.zeros(count, bool),
        truncated=np.zeros(count, bool),
    )


def filled(buffer, env_steps):
    """Fill environment i's part with 100 * i + 0, 1, 2, ..."""
    for env, steps in enumerate(env_steps):
        for step in range(steps):
            buffer.add(transition(np.array([100 * env + step])), buffer_ids=[env])
    return buffer


@pytest.mark.parametrize(
    "sampler",
    [
        RealStateSampler(),
        UniformStateSampler(observation_space=PLANE),
        MixedStateSampler(
            real=RealStateSampler(), uniform=UniformStateSampler(observation_space=PLANE)
        ),
        ReservoirStateSampler(observation_space=PLANE, capacity=3),
    ],
)
def test_every_sampler_follows_the_protocol(sampler):
    assert isinstance(sampler, StateSampler)


def test_real_states_come_from_all_parts_evenly_and_only_from_filled_slots():
    # part 0 wrapped around (keeps 3..12), part 1 holds 4 of 10, part 2 is empty
    buffer = filled(ObservationOnlyBuffer(30, 3), [13, 4, 0])
    states = RealStateSampler(seed=0).sample(14_000, buffer)
    values, counts = np.unique(states, return_counts=True)
    assert values.tolist() == [*range(3, 13), *range(100, 104)]
    assert counts.min() > 850  # 1000 expected of each; 5 standard deviations are 150
    assert counts.max() < 1150


def test_real_states_are_stacked_as_the_buffer_stacks_them():
    buffer = filled(ReplayBuffer(10, stack_num=3), [6])
    states = RealStateSampler(seed=0).sample(50, buffer)
    assert states.shape == (50, 3)
    newest = states[:, -1]
    np.testing.assert_array_equal(states[:, 0], np.maximum(newest - 2, 0))


def test_real_sampling_does_not_disturb_the_buffers_own_draws():
    one, other = (filled(VectorReplayBuffer(30, 3), [9, 9, 9]) for _ in range(2))
    RealStateSampler(seed=0).sample(64, one)
    np.testing.assert_array_equal(one.sample_indices(64), other.sample_indices(64))


def test_real_sampling_from_an_empty_buffer_is_a_clear_error():
    with pytest.raises(ValueError, match="empty; collect before"):
        RealStateSampler().sample(1, VectorReplayBuffer(10, 2))


@pytest.mark.parametrize("sampler_class", [RealStateSampler, UniformStateSampler])
def test_draws_follow_the_seed(sampler_class):
    buffer = filled(VectorReplayBuffer(100, 1), [100])

    def draws(seed):
        options = {} if sampler_class is RealStateSampler else {"observation_space": PLANE}
        sampler = sampler_class(seed=seed, **options)
        sampler.observe(np.array([[0, 0], [1, 1]], np.float32))
        return sampler.sample(16, buffer).tolist()

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def test_uniform_draws_fill_the_observed_box_and_no_more():
    sampler = UniformStateSampler(observation_space=PLANE, seed=0)
    sampler.observe(np.array([[-1.0, 5.0], [3.0, 5.0]], np.float32))
    sampler.observe(np.array([0.0, 7.0], np.float32))  # a single observation
    states = sampler.sample(20_000, None)
    assert states.dtype == np.float32
    assert states.min(axis=0) == pytest.approx([-1.0, 5.0], abs=1e-2)
    assert states.max(axis=0) == pytest.approx([3.0, 7.0], abs=1e-2)
    assert states.min(axis=0)[0] >= -1.0
    assert states.max(axis=0)[1] <= 7.0
    assert states.mean(axis=0) == pytest.approx([1.0, 6.0], abs=0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_dimension_stays_exactly_constant(dtype):
    sampler = UniformStateSampler(observation_space=spaces.Box(-1, 1, (2,), dtype), seed=0)
    sampler.observe(np.array([[0.1, 0.0], [0.1, 1.0]], dtype))
    assert set(sampler.sample(1000, None)[:, 0]) == {dtype(0.1)}


def test_the_widest_finite_range_neither_overflows_nor_gives_nan():
    largest = np.finfo(np.float64).max
    sampler = UniformStateSampler(
        observation_space=spaces.Box(-np.inf, np.inf, (1,), np.float64), seed=0
    )
    sampler.observe(np.array([[-largest], [largest]]))
    assert np.isfinite(sampler.sample(1000, None)).all()


def test_values_that_are_not_finite_are_passed_over():
    sampler = UniformStateSampler(observation_space=PLANE, seed=0)
    sampler.observe(np.array([[np.inf, np.nan], [1.0, 2.0]], np.float32))
    np.testing.assert_array_equal(sampler.sample(3, None), np.tile([1.0, 2.0], (3, 1)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiBinary(3),
        spaces.MultiDiscrete([9, 9, 9]),
        spaces.Box(0, 255, (3,), np.uint8),
        spaces.Box(-(10**6), 10**6, (3,), np.int64),
        spaces.Box(0, 1, (3,), np.bool_),
    ],
    ids=str,
)
def test_integer_spaces_give_whole_numbers_bounds_included_and_dark_cells_stay_dark(space):
    sampler = UniformStateSampler(observation_space=space, seed=0)
    sampler.observe(np.array([[0, 0, 1], [0, 1, 1]], space.dtype))
    states = sampler.sample(400, None)
    assert states.dtype == space.dtype
    assert set(states[:, 0].tolist()) == {0}
    assert set(states[:, 1].tolist()) == {0, 1}
    assert 120 < states[:, 1].sum() < 280
    assert set(states[:, 2].tolist()) == {1}


def test_a_float_box_is_continuous_even_when_whole_numbers_were_seen():
    sampler = UniformStateSampler(observation_space=PLANE, seed=0)
    sampler.observe(np.array([[0, 0], [1, 1]], np.float32))
    assert len(np.unique(sampler.sample(100, None))) == 200


def test_whole_numbers_in_a_float_box_include_both_bounds():
    sampler = UniformStateSampler(observation_space=PLANE, seed=0)
    sampler.observe(np.array([[-1, 3], [1, 3]], np.int64))
    states = sampler.sample(300, None)
    assert states.dtype == np.int64
    counts = np.unique(states[:, 0], return_counts=True)
    assert counts[0].tolist() == [-1, 0, 1]
    assert min(counts[1]) > 60
    assert set(states[:, 1].tolist()) == {3}


def test_drawing_before_anything_was_observed_is_a_clear_error():
    sampler = UniformStateSampler(observation_space=PLANE)
    with pytest.raises(ValueError, match=r"no state was observed.*observe_step.*Collector"):
        sampler.sample(1, None)


def test_bad_spaces_and_shapes_are_named():
    with pytest.raises(ValueError, match="observation_space=Text"):
        UniformStateSampler(observation_space=spaces.Text(5))
    with pytest.raises(ValueError, match=r"shape \(7, 3\).*\(2,\)"):
        UniformStateSampler(observation_space=PLANE).observe(np.zeros((7, 3)))


def test_mixed_batches_hold_the_share_of_each():
    buffer = ReplayBuffer(10)
    for step in range(10):
        obs = np.full((1, 2), 100 + step, np.float32)
        buffer.add(transition(obs), buffer_ids=[0])
    uniform = UniformStateSampler(observation_space=PLANE, seed=1)
    sampler = MixedStateSampler(
        real=RealStateSampler(seed=0), uniform=uniform, real_share=0.3, seed=2
    )
    sampler.observe(np.array([[0, 0], [1, 1]], np.float32))
    real_counts = [int((sampler.sample(32, buffer)[:, 0] >= 100).sum()) for _ in range(2000)]
    assert set(real_counts) == {9, 10}
    assert np.mean(real_counts) == pytest.approx(9.6, abs=0.06)
    with pytest.raises(ValueError, match=r"real_share=1.5"):
        MixedStateSampler(real=sampler.real, uniform=uniform, real_share=1.5)


def test_a_restored_sampler_continues_with_the_same_draws():
    buffer = filled(ReplayBuffer(10), [10])

    def build(seed):
        space = spaces.Box(0, 20, (), np.int64)
        return MixedStateSampler(
            real=RealStateSampler(seed=seed),
            uniform=UniformStateSampler(observation_space=space, seed=seed),
            seed=seed,
        )

    original, restored = build(0), build(1)
    original.observe(np.array([3, 17]))
    original.sample(5, buffer)
    restored.load_state_dict(original.state_dict())
    np.testing.assert_array_equal(original.sample(99, buffer), restored.sample(99, buffer))
    with pytest.raises(ValueError, match="saved bounds of shape"):
        UniformStateSampler(observation_space=PLANE).load_state_dict(original.uniform.state_dict())
