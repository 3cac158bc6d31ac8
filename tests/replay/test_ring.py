"""RingReplayBuffer is Tianshou's VectorReplayBuffer, bit for bit."""

import copy

import numpy as np
import pytest
from tianshou.data import Batch, VectorReplayBuffer

from medqn_tianshou.replay.ring import RingReplayBuffer
from medqn_tianshou.replay.tianshou_buffers import (
    load_raw_replay_state,
    raw_replay_state,
    seed_replay_buffer,
)


def transition(generator, count=1, **changes):
    fields = {
        "obs": generator.normal(size=(count, 3)).astype(np.float32),
        "obs_next": generator.normal(size=(count, 3)).astype(np.float32),
        "act": generator.integers(4, size=count),
        "rew": generator.normal(size=count),
        "terminated": generator.random(count) < 0.1,
        "truncated": generator.random(count) < 0.1,
    }
    fields["done"] = fields["terminated"] | fields["truncated"]
    return Batch({**fields, **changes})


def both(size=8, environments=1, **options):
    buffers = [
        kind(size, environments, **options) for kind in (RingReplayBuffer, VectorReplayBuffer)
    ]
    for buffer in buffers:
        seed_replay_buffer(buffer, 5)
    return buffers


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for name in ("obs", "obs_next", "act", "rew", "terminated", "truncated", "done"):
        if name in theirs._meta.get_keys():
            found, expected = ours._meta[name], theirs._meta[name]
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
    for size in (0, 5, None):
        np.testing.assert_array_equal(ours.sample_indices(size), theirs.sample_indices(size))
    np.testing.assert_array_equal(ours.unfinished_index(), theirs.unfinished_index())
    indices = np.arange(len(ours))
    np.testing.assert_array_equal(ours.next(indices), theirs.next(indices))
    np.testing.assert_array_equal(ours.prev(indices), theirs.prev(indices))


@pytest.mark.parametrize(
    ("environments", "options"),
    [
        (1, {}),
        (3, {}),
        (1, {"ignore_obs_next": True}),
        (1, {"stack_num": 2}),
        (1, {"rew": np.array([[0.5, 2.0]])}),
    ],
    ids=["one", "three", "without successors", "stacks", "vectors of rewards"],
)
def test_it_stores_and_samples_as_tianshous_does(environments, options):
    changes = {"rew": options["rew"]} if "rew" in options else {}
    ours, theirs = both(9, environments, **{k: v for k, v in options.items() if k != "rew"})
    generators = [np.random.default_rng(0) for _ in range(2)]
    for _ in range(30):
        results = [
            buffer.add(transition(generator, environments, **changes))
            for buffer, generator in zip((ours, theirs), generators, strict=True)
        ]
        for found, expected in zip(*results, strict=True):
            np.testing.assert_array_equal(found, expected)
        assert_same(ours, theirs)


def test_a_fetch_reads_what_sampling_gives():
    ours, theirs = both(8)
    generator = np.random.default_rng(0)
    for _ in range(20):
        step = transition(generator)
        ours.add(copy.deepcopy(step))
        theirs.add(copy.deepcopy(step))
    batch, indices = theirs.sample(5)
    (act, rew, terminated, truncated), (obs, states, obs_next) = ours.fetch(
        ours.sample_indices(5), [indices[:2]]
    )
    for found, name in ((act, "act"), (rew, "rew"), (terminated, "terminated"), (obs, "obs"),
                        (truncated, "truncated"), (obs_next, "obs_next")):  # fmt: skip
        np.testing.assert_array_equal(found, batch[name])
    np.testing.assert_array_equal(states, batch.obs[:2])


@pytest.mark.parametrize(
    "changes",
    [
        {"obs": np.zeros((1, 4), np.float32)},
        {"rew": np.zeros((1, 2))},
        {"obs": np.array([["a", "b", "c"]])},
    ],
    ids=["wider", "vector of rewards", "text"],
)
def test_what_does_not_fit_is_tianshous_error(changes):
    ours, theirs = both()
    generator = np.random.default_rng(0)
    first = transition(generator)
    wrong = transition(generator, **changes)
    for buffer in (ours, theirs):
        buffer.add(copy.deepcopy(first))
        with pytest.raises((ValueError, TypeError)):
            buffer.add(copy.deepcopy(wrong))


def test_its_state_can_be_saved_and_loaded():
    ours, theirs = both()
    generator = np.random.default_rng(0)
    for _ in range(11):
        ours.add(transition(generator))
    load_raw_replay_state(theirs, raw_replay_state(ours))
    other = RingReplayBuffer(8, 1)
    load_raw_replay_state(other, copy.deepcopy(raw_replay_state(ours)))
    for _ in range(9):
        step = transition(generator)
        for buffer in (ours, theirs, other):
            buffer.add(copy.deepcopy(step))
    assert_same(ours, theirs)
    np.testing.assert_array_equal(other._meta.obs, ours._meta.obs)
