"""Tianshou 2's own DQN on Atari, with its ``VectorReplayBuffer`` and with ours.

Run it as ``python -m benchmarks.memory.tianshou2``, with Tianshou 2. Random play fills the buffer;
at each size, Tianshou's trainer collects and asks the buffer for missing values, as it always does.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

BUFFERS = ("raw", "compact")
SIZES = (1_000, 5_000, 10_000)
STEPS = 10
"""Environment steps of a collect, Tianshou's own choice for Atari."""
COLLECTS = 5


def measure(name: str) -> Iterator[dict[str, Any]]:
    """Fill a buffer; measure its memory and the time of a collect at each size."""
    import numpy as np
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.trainer import OffPolicyTrainerParams

    from medqn_tianshou import CompactVectorReplayBuffer, NatureQNetwork
    from medqn_tianshou.envs.atari import make_atari_envs
    from medqn_tianshou.replay.tianshou_buffers import replay_nbytes

    envs = make_atari_envs(
        task="QbertNoFrameskip-v4", backend="ale", frames_stack=4, num_envs=1, seed=0, training=True
    )
    action_space = envs.action_space[0]
    model = NatureQNetwork(observation_shape=(4, 84, 84), action_count=int(action_space.n))
    algorithm = DQN(
        policy=DiscreteQLearningPolicy(model=model, action_space=action_space, eps_training=1.0),
        optim=AdamOptimizerFactory(),
        target_update_freq=500,
    )
    buffer_class = VectorReplayBuffer if name == "raw" else CompactVectorReplayBuffer
    buffer = buffer_class(max(SIZES), 1, stack_num=4, ignore_obs_next=True, save_only_last_obs=True)
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    trainer = algorithm.create_trainer(
        OffPolicyTrainerParams(
            training_collector=collector,
            collection_step_num_env_steps=STEPS,
            show_progress=False,
        )
    )
    for size in SIZES:
        collector.collect(n_step=size - len(buffer), random=True)
        seconds = []
        for _ in range(COLLECTS):
            start = time.perf_counter()
            trainer._collect_training_data()
            seconds.append(time.perf_counter() - start)
        yield {
            "buffer": name,
            "transitions": size,
            # Tianshou's buffer takes the memory of its full size at once.
            "MB": replay_nbytes(buffer) * (size / SIZES[-1] if name == "raw" else 1) / 1e6,
            "ms": float(np.median(seconds)) * 1e3,
            "peak RSS": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }


def make_parser() -> argparse.ArgumentParser:
    """Define the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory.tianshou2")
    parser.add_argument("--buffer", choices=BUFFERS, help="measure one; print JSON")
    return parser


def main() -> int:
    """Measure each buffer in a process of its own, and print a table."""
    buffer = make_parser().parse_args().buffer
    if buffer is not None:
        for row in measure(buffer):
            print(json.dumps(row), flush=True)
        return 0
    print(f"| buffer | transitions | replay, MB | {STEPS} steps, ms | peak RSS, MB |")
    print("|---|---:|---:|---:|---:|")
    for name in BUFFERS:
        command = [sys.executable, "-m", "benchmarks.memory.tianshou2", "--buffer", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        for line in done.stdout.splitlines():
            row = json.loads(line)
            print(
                f"| {row['buffer']} | {row['transitions']:,} | {row['MB']:.1f} | {row['ms']:.0f} "
                f"| {row['peak RSS']:,.0f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
