"""Indices and transitions that the compact buffer refuses, and that leave nothing behind."""

import numpy as np
import pytest
from tianshou.data import Batch

from medqn_tianshou import CompactVectorReplayBuffer


def small(count=1, **changes):
    fields = {
        "obs": np.zeros((count, 4, 4), np.uint8),
        "obs_next": np.ones((count, 4, 4), np.uint8),
        "act": np.zeros(count, int),
        "rew": np.zeros(count),
        "terminated": np.zeros(count, bool),
        "truncated": np.zeros(count, bool),
    }
    return Batch({**fields, **changes})


@pytest.mark.parametrize(
    "index", [10, 22, -11, [0, 22], 1.0, [0.5], np.ones(3, bool), np.ones(11, bool)], ids=str
)
def test_an_index_that_numpy_would_refuse_is_refused(index):
    buffer = CompactVectorReplayBuffer(10, 1, random_seed=0)
    for _ in range(12):
        buffer.add(small())
    with pytest.raises(IndexError):
        buffer[index]
    assert len(buffer[-10:]) == 10


@pytest.mark.parametrize(
    "changes",
    [
        {"terminated": np.zeros((2, 1), bool)},
        {"rew": np.zeros((2, 2))},
        {"obs": np.zeros((2, 4, 5), np.uint8)},
        {"obs_next": np.zeros((2, 5, 4), np.uint8)},
        {"act": np.zeros(3, int)},
        {"obs": np.zeros((3, 4, 4), np.uint8)},
        {"obs": np.zeros((2, 2, 4, 4), np.uint8)},
        {"obs_next": np.zeros((2, 2, 4, 4), np.uint8)},
        {"act": np.array([np.nan, 1])},
        {"act": np.array([0, 2**63], np.uint64)},
        {"act": np.array(["left", "right"])},
        {"buffer_ids": [0, 2]},
        {"buffer_ids": [0, -1]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_rejected_batch_leaves_nothing_behind(changes):
    ids = changes.get("buffer_ids")
    wrong = small(2, **{key: value for key, value in changes.items() if key != "buffer_ids"})
    buffer = CompactVectorReplayBuffer(20, 2, random_seed=0)
    twin = CompactVectorReplayBuffer(20, 2, random_seed=0)
    for number in range(12):
        good = small(2, obs=np.full((2, 4, 4), number, np.uint8), rew=np.full(2, float(number)))
        good.obs_next = good.obs + 1
        buffer.add(good)
        twin.add(good)
        if number in (3, 7):
            with pytest.raises(ValueError, match=r"shape|act|int|buffer_ids"):
                buffer.add(wrong, ids)
    assert len(buffer) == len(twin)
    for key in ("obs", "obs_next", "rew", "done"):
        np.testing.assert_array_equal(buffer[:][key], twin[:][key])


def test_a_rejected_first_batch_does_not_decide_on_shapes():
    buffer = CompactVectorReplayBuffer(20, 2, random_seed=0)
    with pytest.raises(ValueError, match="shape"):
        buffer.add(small(2, obs_next=np.zeros((2, 5, 5), np.uint8)))
    buffer.add(small(2))
    assert buffer[:].obs.shape == (2, 4, 4)
