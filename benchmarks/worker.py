#!/usr/bin/env python
"""Measures the memory of the process it runs in; started anew by ``processes.py`` for each figure.

Takes one argument, a JSON object: the job, and its parameters. Prints a JSON object. What it
imports besides the standard library it imports late: how much memory that takes is to be seen.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any


def hide_minatar() -> None:
    """Keep Gymnasium from loading MinAtar as its plugin, as if it were not installed."""
    plugin = ModuleType("minatar.gym")
    plugin.register_envs = lambda: None  # type: ignore[attr-defined]
    sys.modules.setdefault(plugin.__name__, plugin)


def fill_replay(*, transitions: int, num_envs: int) -> dict[str, Any]:
    """Fill a compact buffer with random play of Qbert.

    :param transitions: its size.
    :param num_envs: how many environments to play at a time.
    """
    hide_minatar()
    from play import ATARI_REPLAY, RandomPlay, make_game

    from medqn_tianshou import CompactVectorReplayBuffer
    from medqn_tianshou.training.memory import MemoryMonitor

    play = RandomPlay(make_game("Qbert", num_envs))
    warm_up = CompactVectorReplayBuffer(1000, num_envs, **ATARI_REPLAY)
    play.fill(warm_up, transitions=1000)  # loads and compiles what all buffers share
    del warm_up
    gc.collect()
    monitor = MemoryMonitor()
    rss_before = monitor.rss()
    buffer = CompactVectorReplayBuffer(transitions, num_envs, **ATARI_REPLAY)
    start = time.perf_counter()
    play.fill(buffer, transitions=transitions)
    return {
        "transitions": len(buffer),
        "num_envs": num_envs,
        "nbytes": buffer.nbytes,
        "rss_growth": monitor.rss() - rss_before,
        "seconds": time.perf_counter() - start,
    }


def train(
    *, family: str, task: str, algo: str, buffer_size: int, replay: str, rounds: int
) -> dict[str, Any]:
    """Build all that a training script builds, fill the buffer, train for a few updates.

    :param family: ``"atari"`` or ``"minatar"``.
    :param task: the game.
    :param algo: the script's ``--algo``.
    :param buffer_size: the script's ``--buffer-size``.
    :param replay: ``"raw"`` or ``"compact"``.
    :param rounds: updates, each after a collect.
    """
    if family == "atari":
        hide_minatar()
        import envpool  # noqa: F401 (the script loads it when it builds its environments)
    import psutil

    from medqn_tianshou.experiments.families import FAMILIES

    imported = psutil.Process().memory_info().rss

    from play import RandomPlay, Recording
    from tianshou.utils.torch_utils import policy_within_training_step

    from medqn_tianshou.training.options import RunOptions

    folder = TemporaryDirectory()  # goes with this function
    with redirect_stdout(sys.stderr):
        settings = FAMILIES[family].settings(
            task, algo=algo, buffer_size=buffer_size, replay=replay
        )
        options = RunOptions(device="cpu", logdir=Path(folder.name), show_progress=False)
        training: Any = FAMILIES[family].make_training(settings, options)
    policy, collector = training.policy, training.train_collector
    buffer = collector.buffer
    collector.reset()
    if buffer_size > 200_000:  # playing so long would take hours on a slow machine
        for batch in Recording.of(RandomPlay(collector.env), 1000).repeat(buffer_size):
            buffer.add(batch, [0])
        collector.reset_env()
    else:
        collector.collect(n_step=buffer_size, random=True)
    if len(buffer) != buffer_size:
        raise RuntimeError(f"the buffer holds {len(buffer)} of {buffer_size} transitions")
    policy.set_eps(settings.eps_train_final)
    policy.set_env_step(buffer_size)
    for _ in range(rounds):
        with policy_within_training_step(policy):
            collector.collect(n_step=settings.step_per_collect)
            policy.update(sample_size=training.trainer.batch_size, buffer=buffer)
    usage = training.logger.monitor.measure()
    return {
        "imported": imported,
        "rss": usage.rss,
        "peak_rss": usage.peak_rss,
        "buffer": usage.buffer,
        "transitions": len(buffer),
    }


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"fill_replay": fill_replay, "train": train}


if __name__ == "__main__":
    parameters = json.loads(sys.argv[1])
    print(json.dumps(JOBS[parameters.pop("job")](**parameters)))
