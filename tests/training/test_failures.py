"""Processes that die and memory that runs out: a clear line, and the run is safe."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scripts import ROOT
from tianshou.data import Batch

from medqn_tianshou.envs.atari import make_atari_envs
from medqn_tianshou.envs.workers import DeadWorkerError
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.replay_memory import MemoryWatch


@pytest.mark.process
def test_a_dead_environment_worker_is_named():
    envs = make_atari_envs(
        task="QbertNoFrameskip-v4", num_envs=2, seed=0, training=True, backend="ale"
    )
    try:
        envs.reset()
        envs.workers[1].process.kill()
        with pytest.raises(DeadWorkerError, match=r"Qbert.* lost worker 1 \(process \d+, signal 9"):
            envs.step(np.zeros(2, int))
    finally:
        envs.workers[0].process.kill()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_ends_a_run_with_a_checkpoint(tmp_path, number):
    flags = (
        "--task PongNoFrameskip-v4 --env-backend ale --training-num 2 --test-num 2 --epoch 9 "
        "--step-per-epoch 100000 --buffer-size 5000 --warmup-steps 64 --no-progress"
    )
    command = [sys.executable, ROOT / "atari/atari_medqn.py", *flags.split(), "--logdir", tmp_path]
    command += ["--device", "cpu", "--checkpoint-every", "100"]
    with subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 300
        while not list(tmp_path.rglob("*.checkpoint")) and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.2)
        os.killpg(process.pid, number)
        errors = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + number, errors
    assert "lost worker" not in errors
    (summary,) = tmp_path.rglob("summary.json")
    assert json.loads(summary.read_text())["status"] == "interrupted"


def test_the_buffer_gives_up_its_oldest_before_the_process_exceeds_its_cap():
    buffer = CompactVectorReplayBuffer(5000, 1, random_seed=0)
    rng = np.random.default_rng(0)
    obs = rng.random((4001, 1, 50))
    for i in range(4000):
        step = {"obs": obs[i], "obs_next": obs[i + 1], "act": np.array([i % 3])}
        ends = {name: np.array([False]) for name in ("terminated", "truncated", "done")}
        buffer.add(Batch(step | ends | {"rew": np.array([float(i)])}))
    full, newest = buffer.nbytes, buffer.rew.max()
    base = 1_000_000
    watch = MemoryWatch(buffer, cap=2 * base + full, rss=lambda: base + buffer.nbytes)
    assert watch.check() is None
    assert len(buffer) == 4000
    cap = base + full
    watch = MemoryWatch(buffer, cap=cap, rss=lambda: base + buffer.nbytes)
    said = watch.check()
    assert base + buffer.nbytes <= 0.91 * cap
    gone = 4000 - len(buffer)
    assert 0 < gone < 3000
    assert f"evicted its oldest {gone:,} transitions" in said
    assert buffer[:].rew.tolist() == list(range(gone, 4000))
    assert buffer.rew.max() == newest
    assert watch.check() is None
    too_small = MemoryWatch(buffer, cap=base // 2, rss=lambda: base + buffer.nbytes)
    assert not too_small.is_on
    assert too_small.check() is None
