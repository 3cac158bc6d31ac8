"""Compact replay on disk: the same data and draws, no pickle, no trust in the file."""

import contextlib
import hashlib
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tianshou.data import Batch

from medqn_tianshou import CompactVectorReplayBuffer, ReplayFileError
from medqn_tianshou.replay.codecs import DamagedBlockError
from medqn_tianshou.replay.file import FORMAT

MAGIC = FORMAT.magic
HEADER = len(MAGIC) + 16  # behind the lengths of header and payload
DIGEST_NBYTES = 32

ENVS = 3
KINDS = {
    "frames": lambda rng, t: (np.arange(36).reshape(6, 6) * (t % 3)).astype(np.uint8),
    "noise": lambda rng, t: rng.integers(0, 256, (6, 6), np.uint8),
    "bits": lambda rng, t: rng.random((3, 5)) < 0.3,
    "floats": lambda rng, t: rng.normal(size=4).astype(np.float32),
}


def filled(kind="frames", steps=150, **options):
    rng = np.random.default_rng(1)
    options = {"stack_num": 2, "random_seed": 5, **options}
    buffer = CompactVectorReplayBuffer(90, ENVS, **options)
    obs = [KINDS[kind](rng, 0) for _ in range(ENVS)]
    for t in range(1, steps):
        obs_next = [KINDS[kind](rng, t + env) for env in range(ENVS)]
        buffer.add(
            Batch(
                obs=np.stack(obs),
                act=rng.integers(4, size=ENVS),
                rew=rng.integers(-1, 2, size=ENVS) * (0.1 if t % 50 == 0 else 1.0),
                terminated=rng.random(ENVS) < 0.1,
                truncated=rng.random(ENVS) < 0.1,
                obs_next=np.stack(obs_next),
            )
        )
        obs = obs_next if t % 40 else [KINDS[kind](rng, 7) for _ in range(ENVS)]
    return buffer


def same(one, other):
    assert len(one) == len(other)
    first, second = one[:], other[:]
    for key in ("obs", "obs_next", "act", "rew", "terminated", "truncated"):
        a, b = getattr(first, key), getattr(second, key)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.unfinished_index(), other.unfinished_index())
    np.testing.assert_array_equal(one.last_index, other.last_index)


@pytest.mark.parametrize("max_bytes", [None, 20_000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_restores_data_and_future(tmp_path, kind, max_bytes):
    buffer = filled(kind, max_bytes=max_bytes)
    buffer.sample_indices(7)  # draws are under way
    buffer.save(tmp_path / "replay")
    loaded = CompactVectorReplayBuffer.load(tmp_path / "replay")
    same(buffer, loaded)
    assert loaded.max_bytes == max_bytes
    assert loaded.nbytes == buffer.nbytes
    for _ in range(3):
        np.testing.assert_array_equal(buffer.sample_indices(16), loaded.sample_indices(16))
    transitions = filled(kind, steps=2)[np.array([0, 30, 60])]
    step = Batch(
        obs=transitions.obs[:, -1],
        obs_next=transitions.obs_next[:, -1],
        **{key: transitions[key] for key in ("act", "rew", "terminated", "truncated")},
    )
    for _ in range(40):  # both go on alike, over the edge and through further blocks
        for one, other in zip(buffer.add(step), loaded.add(step), strict=True):
            np.testing.assert_array_equal(one, other)
    same(buffer, loaded)


def test_an_empty_buffer_and_one_in_mid_episode(tmp_path):
    empty = CompactVectorReplayBuffer(50, 2, random_seed=1)
    empty.save(tmp_path / "empty")
    loaded = CompactVectorReplayBuffer.load(tmp_path / "empty")
    assert len(loaded) == 0
    batch = Batch(
        obs=np.zeros((2, 3), np.float32),
        act=np.array([1, 2]),
        rew=np.array([1.0, 2.0]),
        terminated=np.array([False, False]),
        truncated=np.array([False, False]),
        obs_next=np.ones((2, 3), np.float32),
    )
    loaded.add(batch)
    loaded.save(tmp_path / "begun")
    again = CompactVectorReplayBuffer.load(tmp_path / "begun")
    batch.terminated = np.array([True, True])
    batch.obs, batch.obs_next = batch.obs_next, batch.obs
    _, returns, lengths, starts = again.add(batch)
    assert returns.tolist() == [2.0, 4.0]
    assert lengths.tolist() == [2, 2]
    assert starts.tolist() == [0, 25]


def split(data):
    """Return the header of a file, and the bytes behind it."""
    stop = HEADER + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    return json.loads(data[HEADER:stop]), data[stop:]


def joined(header, rest):
    """A file with another header and a right digest."""
    text = json.dumps(header).encode()
    lengths = [len(text), len(rest) - DIGEST_NBYTES]
    return forge(MAGIC + b"".join(n.to_bytes(8, "little") for n in lengths) + text + rest)


def test_no_pickle_and_nothing_left_beside(tmp_path):
    filled().save(tmp_path / "replay")
    assert [path.name for path in tmp_path.iterdir()] == ["replay"]
    data = (tmp_path / "replay").read_bytes()
    header, _ = split(data)
    assert header["content"]["options"]["buffer_num"] == ENVS


@pytest.mark.parametrize("damage", ["cut", "flip", "append", "empty", "foreign"])
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "replay"
    filled().save(path)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "append":
        data += b"x"
    elif damage == "empty":
        data.clear()
    else:
        data[:] = b"not a replay buffer, but long enough to be one" * 10
    path.write_bytes(data)
    with pytest.raises(ReplayFileError, match=r"replay: (truncated or altered|not a replay)"):
        CompactVectorReplayBuffer.load(path)


def test_a_failed_save_keeps_the_file_before_it(tmp_path, monkeypatch):
    path = tmp_path / "replay"
    buffer = filled(steps=20)
    buffer.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("medqn_tianshou.replay.file._describe", lambda part: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        filled(steps=50).save(path)
    assert path.read_bytes() == before


def forge(data):
    """Give changed bytes a right digest, as a stranger could."""
    body = bytes(data[:-DIGEST_NBYTES])
    return body + hashlib.blake2b(body, digest_size=DIGEST_NBYTES).digest()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    files = {}
    for kind in KINDS:
        filled(kind).save(folder / kind)
        files[kind] = (folder / kind).read_bytes()
    return folder, files


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_forged_files_are_refused_or_harmless(saved, data):
    folder, files = saved
    content = bytearray(files[data.draw(st.sampled_from(sorted(files)))])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(len(MAGIC), len(content) - DIGEST_NBYTES - 1))
        content[place] = data.draw(st.integers(0, 255))
    path = folder / "forged"
    path.write_bytes(forge(content))
    try:
        loaded = CompactVectorReplayBuffer.load(path)
    except ReplayFileError:
        return
    with contextlib.suppress(DamagedBlockError):
        loaded[:]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("options", "buffer_num"), 10**9),
        (("options", "total_size"), -5),
        (("options", "stack_num"), 10**12),
        (("rows", "", 1), [10**6, 10**6]),
        (("rows", "", 0), "|O8"),
        (("columns", "rew", 0), "|O8"),
        (("block_len",), 0),
        (("parts", 0, "ring"), 10**12),
        (("parts", 0, "next"), 10**6),
        (("parts", 0, "first_row"), 64),
        (("options", "max_bytes"), "much"),
        (("parts", 0, "run_layout"), [10**12, 0, 10**12]),
        (("parts", 0, "run_layout", 2), 10**9),
        (("parts", 0, "broken"), [10**9]),
        (("parts", 0, "rows", ""), [10**12]),
        (("parts", 0, "columns", "act"), {"__array__": 0}),
        (("parts", 0, "generator", "state", "pos"), 10**9),
        (("parts", 0, "generator", "has_gauss"), 2),
        (("generator", "state", "pos"), -1),
        (("generator", "state", "key"), [0] * 624),
        (("block_len",), 25),
        (("block_len",), 10**5),
        (("rows",), {}),
        (("columns",), {}),
        (("columns", "flags", 0), "<i8"),
        (("columns", "rew", 0), ">f8"),
        (("columns", "rew", 0), "<c16"),
        (("columns", "act", 0), "<c16"),
        (("columns", "act", 0), ">i8"),
        (("columns", "rew", 1), [2**40]),
        (("options", "stack_num"), 2**9),
        (("options", "max_bytes"), -1),
        (("options", "max_bytes"), float("nan")),
        (("options", "max_bytes"), True),
        (("options", "sample_avail"), "no"),
        (("options", "keep"), ["info", "else"]),
        (("parts", 0, "run_is_open"), 7),
        (("parts", 0, "episode_length"), 0.5),
        (("parts", 1, "columns", "act"), {"__array__": 2}),
    ],
)
def test_no_number_in_the_header_is_believed(saved, field, value):
    folder, files = saved
    header, rest = split(files["frames"])
    *way, last = field
    place = header["content"]
    for key in way:
        place = place[key]
    assert place[last] != value
    place[last] = value
    path = folder / "forged"
    path.write_bytes(joined(header, rest))
    tracemalloc.start()
    with pytest.raises(ReplayFileError):
        CompactVectorReplayBuffer.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_header_without_rows_and_columns_has_no_transitions(tmp_path):
    path = tmp_path / "replay"
    CompactVectorReplayBuffer(2**40, 1, random_seed=0).save(path)
    assert len(CompactVectorReplayBuffer.load(path)) == 0
    header, rest = split(path.read_bytes())
    header["content"]["parts"][0] |= {"next": 2**40, "ring": 2**40}
    path.write_bytes(joined(header, rest))
    with pytest.raises(ReplayFileError):
        CompactVectorReplayBuffer.load(path)


def test_what_a_file_refuses_a_buffer_refuses_at_once():
    for name, value in (("stack_num", 257), ("buffer_num", 2**14 + 1), ("total_size", 2**49)):
        with pytest.raises(ValueError, match=f"{name}={value} must be at least 1 and at most"):
            CompactVectorReplayBuffer(**{"total_size": 10, "buffer_num": 1, name: value})


FORGED_ARRAYS = [("broken", 10**9), ("rows/", 10**12), ("rows/", -1), ("columns/flags", 200)]


@pytest.mark.parametrize(("way", "value"), FORGED_ARRAYS)
def test_no_number_in_an_array_is_believed(saved, way, value):
    folder, files = saved
    header, rest = split(files["frames"])
    place = header["content"]["parts"][0]
    for key in way.split("/"):
        place = place[key]
    number = place["__array__"]
    sizes = [np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in header["arrays"]]
    start, dtype = sum(sizes[:number]), np.dtype(header["arrays"][number][0])
    forged = np.array([value]).astype(dtype).tobytes()
    if not sizes[number]:
        header["arrays"][number][1] = [1]
    rest = rest[:start] + forged + rest[start + min(len(forged), sizes[number]) :]
    path = folder / "forged"
    path.write_bytes(joined(header, rest))
    with pytest.raises(ReplayFileError):
        CompactVectorReplayBuffer.load(path)


def test_a_file_of_another_version_is_refused_with_one_line(tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"medqn replay 1\n\0" + bytes(100))
    with pytest.raises(ReplayFileError, match=r"old: written by another version .*format 1;.* 2"):
        CompactVectorReplayBuffer.load(path)


def test_saving_and_loading_take_little_memory(tmp_path):
    rng = np.random.default_rng(0)
    buffer = CompactVectorReplayBuffer(2_000, 1, random_seed=0)
    frames = rng.integers(0, 256, (2_001, 1, 2_500), np.uint8)
    for t in range(2_000):
        buffer.add(
            Batch(
                obs=frames[t],
                act=np.array([0]),
                rew=np.array([0.0]),
                terminated=np.array([False]),
                truncated=np.array([False]),
                obs_next=frames[t + 1],
            )
        )
    assert buffer.nbytes > 4_900_000
    tracemalloc.start()
    buffer.save(tmp_path / "replay")
    _, saving = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    loaded = CompactVectorReplayBuffer.load(tmp_path / "replay")
    held, loading = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(loaded) == 2_000
    assert saving < 0.1 * buffer.nbytes
    assert loading < 1.3 * buffer.nbytes  # what it holds then, and a piece of the file
    assert held < 1.1 * buffer.nbytes
