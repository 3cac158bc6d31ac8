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
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent


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
    from medqn_tianshou.memory import MemoryMonitor

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
    sys.path.append(str(ROOT / family))
    script: Any = import_module(f"{family}_medqn")
    import psutil

    imported = psutil.Process().memory_info().rss

    from play import ATARI_REPLAY, REPLAY, RandomPlay, Recording
    from tianshou.utils.torch_utils import policy_within_training_step

    from medqn_tianshou import LeanCollector
    from medqn_tianshou.job import uses_whole_buffer
    from medqn_tianshou.memory import MemoryMonitor
    from medqn_tianshou.replay import replay_nbytes
    from medqn_tianshou.settings import setting_values

    parser = script.make_parser()
    task_flag = "--task" if family == "atari" else "--game"
    args = parser.parse_args(
        [task_flag, task, "--algo", algo, "--buffer-size", str(buffer_size), "--device", "cpu"]
    )
    settings = script.resolve(parser, args)
    value = setting_values(settings)
    build = _build_atari if family == "atari" else _build_minatar
    policy, envs, test_envs = build(script, args, settings)
    options = ATARI_REPLAY if family == "atari" else {}
    buffer = REPLAY[replay](buffer_size, len(envs), **options)
    collector = LeanCollector(
        policy,
        envs,
        buffer,
        exploration_noise=True,
        on_step_hook=None if value.sampling == "real" else policy.observe_step,
    )
    test_collector = LeanCollector(policy, test_envs, exploration_noise=True) if test_envs else None
    collector.reset()
    if replay == "raw" and buffer_size > 200_000:  # its size does not depend on what it holds
        for batch in Recording.of(RandomPlay(envs), 1000).repeat(buffer_size):
            buffer.add(batch, [0])
        collector.reset_env()
    else:
        collector.collect(n_step=buffer_size, random=True)
    if len(buffer) != buffer_size:
        raise RuntimeError(f"the buffer holds {len(buffer)} of {buffer_size} transitions")
    policy.set_eps(value.eps_train_final)
    policy.set_env_step(buffer_size)
    batch_size = 0 if uses_whole_buffer(settings) else value.batch_size
    for _ in range(rounds):
        with policy_within_training_step(policy):
            collector.collect(n_step=value.step_per_collect)
            policy.update(sample_size=batch_size, buffer=buffer)
    usage = MemoryMonitor(lambda: replay_nbytes(buffer)).measure()
    del test_collector
    return {
        "imported": imported,
        "rss": usage.rss,
        "peak_rss": usage.peak_rss,
        "buffer": usage.buffer,
        "transitions": len(buffer),
    }


def _build_atari(script: Any, args: Any, settings: Any) -> tuple[Any, Any, Any]:
    from medqn_tianshou.envs.atari import make_atari_envs
    from medqn_tianshou.seeding import seed_everything
    from medqn_tianshou.settings import setting_values

    value = setting_values(settings)
    seeds = seed_everything(args.seed)
    test_envs, envs = (
        make_atari_envs(
            task=args.task,
            num_envs=num_envs,
            seed=seed,
            training=training,
            backend=value.env_backend,
            frames_stack=value.frames_stack,
        )
        for num_envs, seed, training in (
            (value.test_num, seeds.test_envs, False),
            (value.training_num, seeds.train_envs, True),
        )
    )
    policy = script.make_policy(
        settings, device=args.device, envs=test_envs, sampler_seed=seeds.state_sampler
    )
    return policy, envs, test_envs


def _build_minatar(script: Any, args: Any, settings: Any) -> tuple[Any, Any, None]:
    from tianshou.env import DummyVectorEnv

    from medqn_tianshou.job import build_policy, make_optimizer
    from medqn_tianshou.seeding import seed_everything
    from medqn_tianshou.settings import setting_values

    value = setting_values(settings)
    seeds = seed_everything(args.seed)
    env = script.make_env(args.task, settings)
    envs = DummyVectorEnv([lambda: env])
    envs.seed(seeds.train_envs)
    model = script.make_model(settings, env).to(args.device)
    policy = build_policy(
        settings,
        model=model,
        optim=make_optimizer(model, value.optimizer, value.lr),
        observation_space=env.observation_space,
        action_space=env.action_space,
        sampler_seed=seeds.state_sampler,
        total_env_steps=value.steps,
    )
    return policy, envs, None


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"fill_replay": fill_replay, "train": train}


if __name__ == "__main__":
    parameters = json.loads(sys.argv[1])
    print(json.dumps(JOBS[parameters.pop("job")](**parameters)))
