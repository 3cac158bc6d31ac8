"""Missing values are found without reading the buffer again and again."""

import numpy as np
import pytest
from tianshou.data import Batch

from medqn_tianshou import CompactPrioritizedVectorReplayBuffer, CompactVectorReplayBuffer
from medqn_tianshou.replay.reading import Reader


def add(buffer, count=1, dtype=np.float32, **changed):
    for number in range(count):
        obs = np.full((2, 3), number, dtype)
        fields = {"obs": obs, "obs_next": obs + 1, "rew": np.zeros(2), "act": np.zeros(2, int)}
        ends = {"terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)}
        buffer.add(Batch({**fields, **ends, **changed}))


@pytest.mark.parametrize("kind", ["plain", "prioritized"])
@pytest.mark.parametrize("field", ["rew", "obs", "obs_next"])
def test_a_missing_value_is_found_until_it_is_overwritten(kind, field):
    if kind == "plain":
        buffer = CompactVectorReplayBuffer(40, 2, random_seed=0)
    else:
        buffer = CompactPrioritizedVectorReplayBuffer(40, 2, alpha=0.6, beta=0.4, random_seed=0)
    assert not buffer.hasnull()
    add(buffer, 30)
    assert not buffer.hasnull()
    missing = np.zeros((2, 3), np.float32) if field != "rew" else np.zeros(2)
    missing[1] = np.nan
    add(buffer, **{field: missing})
    add(buffer, 3)
    assert buffer.hasnull()
    assert buffer.hasnull()
    add(buffer, 25)
    assert not buffer.hasnull()
    add(buffer, **{field: missing})
    buffer.reset()
    assert not buffer.hasnull()


def test_what_was_complete_is_not_read_again(monkeypatch):
    buffer = CompactVectorReplayBuffer(400, 2, random_seed=0)
    add(buffer, 150)
    read = []
    locate = Reader.locate

    def noted(reader, index):
        read.append(np.size(index))
        return locate(reader, index)

    monkeypatch.setattr(Reader, "locate", noted)
    assert not buffer.hasnull()
    add(buffer, 2)
    assert not buffer.hasnull()
    assert not buffer.hasnull()
    assert read == [300, 4, 0]


def test_pixels_are_not_read_at_all(monkeypatch):
    buffer = CompactVectorReplayBuffer(400, 2, random_seed=0)
    add(buffer, 5, dtype=np.uint8)
    monkeypatch.delattr(Reader, "observations")
    assert not buffer.hasnull()
