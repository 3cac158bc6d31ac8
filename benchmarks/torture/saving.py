"""The time and the memory that it takes to save a full buffer of Atari frames."""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tianshou.data import Batch

from benchmarks.report import Part, Result, Section, Table, Target
from medqn_tianshou.envs.atari import make_atari_envs
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import read_checkpoint, write_checkpoint


def measure_saving(sizes: Any) -> Result:
    """Write and read a checkpoint with a buffer full of Atari frames."""
    buffer = CompactVectorReplayBuffer(
        sizes.transitions, 1, stack_num=4, save_only_last_obs=True, random_seed=0
    )
    envs = make_atari_envs(task="QbertNoFrameskip-v4", num_envs=1, seed=0, training=True)
    rng = np.random.default_rng(0)
    obs = envs.reset()[0]
    for _ in range(sizes.transitions):
        act = np.array([rng.integers(6)])
        answer: Any = envs.step(act)
        obs_next, rew, terminated, truncated, _ = answer
        done = terminated | truncated
        step = {"obs": obs, "act": act, "rew": rew, "obs_next": obs_next, "done": done}
        buffer.add(Batch(**step, terminated=terminated, truncated=truncated))
        obs = envs.reset()[0] if done[0] else obs_next
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer.checkpoint"
        with _RssPeak() as peak:
            start = time.perf_counter()
            write_checkpoint(path, {}, buffer)
            write_seconds = time.perf_counter() - start
        start = time.perf_counter()
        read = read_checkpoint(path)[1]
        read_seconds = time.perf_counter() - start
        nbytes = path.stat().st_size
    if read is None or len(read) != len(buffer):
        raise RuntimeError("the buffer that was read is not the one that was written")
    return {
        "transitions": len(buffer),
        "buffer_bytes": buffer.nbytes,
        "file_bytes": nbytes,
        "write_seconds": write_seconds,
        "read_seconds": read_seconds,
        "extra_bytes": peak.extra,
    }


class _RssPeak:
    """Measures how much the process grows within a block."""

    extra = 0

    def __enter__(self) -> "_RssPeak":
        self._process = psutil.Process()
        self._start = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.extra = max(self.extra, self._process.memory_info().rss - self._start)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def show_saving(measured: Result) -> Section:
    """Make the section on saving."""
    share = 100 * measured["extra_bytes"] / measured["buffer_bytes"]
    rows = [
        ("transitions", f"{measured['transitions']:,}"),
        ("buffer", f"{measured['buffer_bytes'] / 1e6:.1f} MB"),
        ("file", f"{measured['file_bytes'] / 1e6:.1f} MB"),
        ("written in", f"{measured['write_seconds']:.2f} s"),
        ("read in", f"{measured['read_seconds']:.2f} s"),
    ]
    return Section(
        title="Saving a buffer of Atari frames",
        tables=[Table(("", "Qbert, random play"), rows)],
        notes="One checkpoint with the compact buffer, synced to the disk.",
        targets=[
            Target(what="extra memory to save", value=share, at_most=20, unit="%"),
            Target(what="time to save", value=measured["write_seconds"], at_most=10, unit="s"),
        ],
    )


SAVING = Part(measure_saving, show_saving)
