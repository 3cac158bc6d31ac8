"""Memory: sizes as people write them, limits, measurements, replay bytes and replay seeds."""

import subprocess
import sys

import numpy as np
import psutil
import pytest
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

from medqn_tianshou.replay.tianshou_buffers import (
    predict_replay_nbytes,
    replay_nbytes,
    seed_replay_buffer,
)
from medqn_tianshou.training.memory import MemoryMonitor, format_bytes, memory_limit, parse_bytes


class Writer:
    def __init__(self):
        self.scalars = {}

    def add_scalar(self, tag, value, global_step):
        self.scalars[tag] = (value, global_step)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("800M", 800_000_000),
        ("1.5G", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        ("2gib", 2**31),
        ("10 kB", 10_000),
        ("123", 123),
    ],
)
def test_sizes_are_read_as_people_write_them(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "M", "-1M", "1X", "1iB", "1,5G", "nan"])
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="not a size; write for example 800M"):
        parse_bytes(text)


def test_sizes_are_written_for_people():
    assert [format_bytes(n) for n in (12, 1500, 709_100_000, 7_090_000_000)] == [
        "12 B",
        "1.5 kB",
        "709.1 MB",
        "7.09 GB",
    ]


def fake_system(root, cgroup_lines, files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("\n".join(cgroup_lines) + "\n")
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_cgroup_v2_limit_applies_and_cached_files_do_not_count_as_used(tmp_path):
    root = fake_system(
        tmp_path,
        ["0::/pod/box"],
        {
            "pod/box/memory.max": "max",
            "pod/memory.max": "100000000",
            "pod/memory.current": "60000000",
            "pod/memory.stat": "anon 1\ninactive_file 20000000\n",
        },
    )
    limit = memory_limit(root)
    assert (limit.nbytes, limit.available) == (100_000_000, 60_000_000)
    assert limit.source == "cgroup v2"


def test_cgroup_v1_limit_applies(tmp_path):
    root = fake_system(
        tmp_path,
        ["5:cpu,memory:/box", "3:pids:/box"],
        {
            "memory/box/memory.limit_in_bytes": "50000000",
            "memory/box/memory.usage_in_bytes": "10000000",
            "memory/box/memory.stat": "total_inactive_file 4000000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    limit = memory_limit(root)
    assert (limit.nbytes, limit.available) == (50_000_000, 44_000_000)
    assert limit.source == "cgroup v1"


@pytest.mark.parametrize("files", [{}, {"memory.max": "max"}, {"memory.max": "broken"}])
def test_without_a_container_limit_the_host_is_the_limit(tmp_path, files):
    limit = memory_limit(fake_system(tmp_path, ["0::/"], files))
    assert limit.source == "host"
    assert limit.nbytes == psutil.virtual_memory().total


def test_without_cgroups_the_host_is_the_limit(tmp_path):
    assert memory_limit(tmp_path).source == "host"


def test_peak_remembers_what_was_freed_and_tags_are_written_in_mb():
    monitor = MemoryMonitor(lambda: 7_000_000)
    block = np.ones(150_000_000, np.uint8)
    held = monitor.rss()
    del block
    writer = Writer()
    usage = monitor.log(writer, env_step=42)
    assert usage.rss < held - 100_000_000
    assert usage.peak_rss >= held
    assert writer.scalars["memory/buffer_mb"] == (7.0, 42)
    assert writer.scalars["memory/rss_mb"] == (usage.rss / 1e6, 42)
    assert writer.scalars["memory/peak_rss_mb"] == (usage.peak_rss / 1e6, 42)


@pytest.mark.process
def test_children_are_counted():
    monitor = MemoryMonitor()
    before = monitor.measure().children_rss
    code = "x = bytearray(80_000_000); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert monitor.measure().children_rss - before > 80_000_000
        child.communicate(b"\n")


def example(count):
    return Batch(
        obs=np.zeros((count, 4, 84, 84), np.uint8),
        act=np.zeros(count, np.int64),
        rew=np.zeros(count),
        terminated=np.zeros(count, bool),
        truncated=np.zeros(count, bool),
    )


@pytest.mark.parametrize(("size", "envs"), [(100, 1), (101, 10)])
def test_predicted_bytes_are_those_of_the_full_buffer(size, envs):
    def make(total):
        return VectorReplayBuffer(
            total, envs, stack_num=4, ignore_obs_next=True, save_only_last_obs=True
        )

    buffer = make(size)
    for _ in range(2 * size // envs):
        buffer.add(example(envs))
    slots = buffer.maxsize
    assert slots >= size
    # a frame, action and reward, three flags, and an index in the buffer and in its part
    assert replay_nbytes(buffer) == slots * (84 * 84 + 8 + 8 + 3 + 8 + 8)
    assert predict_replay_nbytes(make, example(envs), size) == replay_nbytes(buffer)


def filled(buffer_class, **options):
    buffer = buffer_class(60, 3, **options)
    for _ in range(20):
        buffer.add(example(3))
    return buffer


def test_replay_draws_follow_the_seed():
    def draws(seed):
        buffer = filled(VectorReplayBuffer)
        seed_replay_buffer(buffer, seed)
        return buffer.sample_indices(64).tolist()

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
    # the parts of one buffer do not repeat each other's draws
    buffer = filled(VectorReplayBuffer)
    seed_replay_buffer(buffer, 1)
    one, other, _ = (part.sample_indices(30).tolist() for part in buffer.buffers)
    assert one != other


def test_unseeded_buffers_all_draw_the_same():
    """The trap that seed_replay_buffer is for; if this fails, Tianshou has mended it."""
    one, other = filled(VectorReplayBuffer), filled(VectorReplayBuffer, random_seed=7)
    assert one._random_state.rand() == other._random_state.rand()


def test_prioritized_draws_follow_numpys_global_seed():
    def draws(seed):
        np.random.seed(seed)
        return filled(PrioritizedVectorReplayBuffer, alpha=0.6, beta=0.4).sample_indices(32)

    np.testing.assert_array_equal(draws(1), draws(1))
    assert (draws(1) != draws(2)).any()
