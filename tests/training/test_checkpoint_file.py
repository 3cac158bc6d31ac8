"""The checkpoint's file format: what is written is read, and anything else is refused."""

import hashlib
import json
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tianshou.data import Batch

from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from medqn_tianshou.training.options import checkpoint_interval

STATE = {
    "numbers": [1, -2.5, 2**127, True, None, "text", float("inf")],
    "arrays": {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.zeros((0, 4))},
    "tensor": torch.arange(4, dtype=torch.float32),
    "scalar": np.array(3.5, np.float32),
    "flags": np.array([True, False]),
    "bytes": b"\x00\xff",
}
MAGIC = b"medqn checkpt 2\n"


def make_buffer():
    buffer = CompactVectorReplayBuffer(20, 1, random_seed=3)
    for i in range(30):
        done = np.array([i % 7 == 6])
        buffer.add(
            Batch(
                obs=np.full((1, 2), float(i)),
                obs_next=np.full((1, 2), i + 1.0),
                act=np.array([i % 3]),
                rew=np.array([0.5 * i]),
                terminated=done,
                truncated=~done & done,
                done=done,
            )
        )
    return buffer


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "valid.checkpoint"
    write_checkpoint(path, STATE, make_buffer())
    return path


def test_what_is_written_is_read(valid):
    state, buffer = read_checkpoint(valid)
    assert state["numbers"] == STATE["numbers"]
    for name in "ab":
        np.testing.assert_array_equal(state["arrays"][name], STATE["arrays"][name])
        assert state["arrays"][name].dtype == STATE["arrays"][name].dtype
    np.testing.assert_array_equal(state["tensor"], STATE["tensor"].numpy())
    assert state["scalar"].shape == ()
    assert state["scalar"] == np.float32(3.5)
    assert state["flags"].tolist() == [True, False]
    assert state["bytes"].tobytes() == b"\x00\xff"
    expected = make_buffer()
    assert buffer[:].rew.tolist() == expected[:].rew.tolist()
    assert buffer.sample_indices(16).tolist() == expected.sample_indices(16).tolist()


@pytest.mark.parametrize("value", [object(), {1: 2}, np.array(["x"]), np.array([None]), 1j, {3}])
def test_what_is_not_plain_data_is_not_written_and_leaves_no_file(tmp_path, value):
    with pytest.raises(TypeError):
        write_checkpoint(tmp_path / "new", {"value": value})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_checkpoint(path, {"n": 1})
    before = path.read_bytes()

    def fail(self, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CompactVectorReplayBuffer, "write_to", fail)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(path, {"n": 2}, make_buffer())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def refused(path):
    """Read a file that must be refused, within little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as info:
            read_checkpoint(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 10**6
    assert len(str(info.value).splitlines()) >= 1
    return str(info.value)


def signed(header):
    """A file that says what it likes, with a digest that is right."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = MAGIC + len(text).to_bytes(8, "little") + bytes(8) + text
    return content + hashlib.blake2b(content, digest_size=32).digest()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        MAGIC,
        MAGIC + b"\xff" * 8,
        MAGIC + b"\xff" * 16,
        MAGIC + bytes(8) + b"\xff" * 8,
        b"PK\x03\x04 a zip file, as torch saves",
        signed(b"not json"),
        signed(b"[" * 100_000),
        signed({}),
        signed([]),
        signed({"content": 3, "arrays": []}),
        signed({"content": {}, "arrays": [["<f8", [10**15]]]}),
        signed({"content": {}, "arrays": [["<f8", [2**40, 2**40]]]}),
        signed({"content": {}, "arrays": [["<f8", [-1]]]}),
        signed({"content": {}, "arrays": [["<f8", [1.5]]]}),
        signed({"content": {}, "arrays": [["<f8", [0] * 40]]}),
        signed({"content": {}, "arrays": [["O", [0]]]}),
        signed({"content": {}, "arrays": [["V9999999999", [0]]]}),
        signed({"content": {}, "arrays": [["<f8,<f8", [0]]]}),
        signed({"content": {}, "arrays": [["nonsense", [0]]]}),
        signed({"content": {}, "arrays": [3]}),
        signed({"content": {"x": {"__array__": 7}}, "arrays": []}),
        signed({"content": {"x": {"__array__": "y"}}, "arrays": []}),
        signed({"content": {}, "arrays": []}) + b"something behind it",
    ],
)
def test_a_file_that_is_none_is_refused_without_allocating(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert str(path) in refused(path)


def test_a_file_of_another_version_is_refused_with_one_line(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"medqn checkpt 1\n" + bytes(100))
    with pytest.raises(CheckpointError, match=r"old: written by another version .*format 1;.* 2"):
        read_checkpoint(path)


def test_every_truncation_and_a_missing_file_are_refused(tmp_path, valid):
    content = valid.read_bytes()
    path = tmp_path / "cut"
    _, end_of_state = content, content.index(b"medqn replay")
    for length in range(0, len(content), 37):
        if length == end_of_state:
            continue
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError):
            read_checkpoint(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_altered_bytes_are_refused(tmp_path_factory, valid, data):
    content = bytearray(valid.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
    if bytes(content) == valid.read_bytes():
        return
    path = tmp_path_factory.getbasetemp() / "altered"
    path.write_bytes(content)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["__array__", "state", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(state=JSON, arrays=JSON | st.lists(st.tuples(st.sampled_from(["<f8", "|u1", "O"]), JSON)))
def test_any_header_gives_a_state_or_the_documented_error(tmp_path_factory, state, arrays):
    path = tmp_path_factory.getbasetemp() / "header"
    path.write_bytes(signed({"content": state, "arrays": arrays}))
    try:
        read, buffer = read_checkpoint(path)
    except CheckpointError:
        return
    assert isinstance(read, dict)
    assert buffer is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50000", (50_000, None)), ("10m", (None, 10)), ("5,0.5m", (5, 0.5)), ("2m,7", (7, 2))],
)
def test_intervals_are_steps_minutes_or_both(text, expected):
    interval = checkpoint_interval(text)
    assert (interval.env_steps, interval.minutes) == expected
