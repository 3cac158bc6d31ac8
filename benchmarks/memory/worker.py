"""Measures the memory of the process it runs in; ``processes.py`` starts one for each figure.

The one argument is a JSON object: the job and its parameters. The output is a JSON object. The jobs
import libraries themselves, so that the memory of the imports can be measured.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from medqn_tianshou.startup import prepare_process, release_code


def fill_replay(*, transitions: int, num_envs: int) -> dict[str, Any]:
    """Fill a compact buffer with random play of Qbert."""
    from benchmarks.memory.play import ATARI_REPLAY, RandomPlay, make_game
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


_COPIES = 3
"""Of the Q network's parameters: gradients, and an optimizer's two averages."""


def train(
    *, family: str, task: str, algo: str, buffer_size: int, replay: str, rounds: int
) -> dict[str, Any]:
    """Build all that a training script builds, fill the buffer, train for a few rounds, evaluate.

    A round is a collect and an update. The other parameters are flags of the script, but for the
    replay ``"stock"``: Tianshou's own policy, collector and buffer, which are not evaluated.
    """
    is_stock = replay == "stock"
    from benchmarks.setups import Setup, import_family

    import_family(family)
    import psutil

    imported = psutil.Process().memory_info().rss

    import torch
    from tianshou.utils.torch_utils import policy_within_training_step

    from benchmarks.memory.play import RandomPlay, Recording
    from benchmarks.speed.stock import Stock
    from medqn_tianshou.replay.tianshou_buffers import replay_nbytes
    from medqn_tianshou.training.memory import MemoryMonitor

    flags = {"--game" if family == "minatar" else "--task": task, "--algo": algo}
    flags |= {"--buffer-size": str(buffer_size), "--replay": "raw" if is_stock else replay}
    # One game says what an evaluation takes; the Atari script always evaluates.
    flags |= {"--test-num": "1"} if family == "atari" else {"--eval-episodes": "1"}
    if family != "atari":
        flags["--eval-every"] = "100000"
    setup = Setup(family, [word for flag in flags.items() for word in flag])
    folder = TemporaryDirectory()  # deleted at the end of this function
    log = Path(folder.name)
    trainer: Any = Stock(setup, log).trainer if is_stock else setup.prepare(log).trainer
    policy, collector = trainer.policy, trainer.train_collector
    buffer = collector.buffer
    monitor = MemoryMonitor(lambda: replay_nbytes(buffer))
    network = sum(p.nbytes for p in policy.parameters()) + sum(
        p.nbytes * _COPIES for p in policy.model.parameters()
    )
    collector.reset()
    if family == "atari" and buffer_size > 20_000:  # playing so long would take hours
        for batch in Recording.of(RandomPlay(collector.env), 1000).repeat(buffer_size):
            buffer.add(batch, [0])
        collector.reset_env()
    else:
        collector.collect(n_step=buffer_size, random=True)
    if len(buffer) != buffer_size:
        raise RuntimeError(f"the buffer holds {len(buffer)} of {buffer_size} transitions")
    if not is_stock:
        release_code()  # as training does after its warm-up
    value = setup.value
    policy.set_eps(value.eps_train_final)
    if not is_stock:
        policy.set_env_step(buffer_size)
    for _ in range(rounds):
        with policy_within_training_step(policy):
            collector.collect(n_step=value.step_per_collect)
            policy.update(sample_size=trainer.batch_size, buffer=buffer)
    usage = monitor.measure()
    if not is_stock:
        trainer.reset(reset_collectors=False)  # with an evaluation
        trainer.logger.before_collect(buffer_size)
    peak_rss = monitor.measure().peak_rss
    return {
        "imported": imported,
        "rss": usage.rss,
        "peak_rss": peak_rss,
        "buffer": usage.buffer,
        "network": network,
        "transitions": len(buffer),
        "torch": torch.__version__,
    }


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"fill_replay": fill_replay, "train": train}


if __name__ == "__main__":
    parameters = json.loads(sys.argv[1])
    if parameters.get("replay") != "stock":
        prepare_process()
    print(json.dumps(JOBS[parameters.pop("job")](**parameters)))
