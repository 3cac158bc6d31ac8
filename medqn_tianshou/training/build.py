"""A training job from settled settings to the summary: what all scripts do after parsing."""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
from tianshou.env import BaseVectorEnv, VectorEnvWrapper

from medqn_tianshou.algorithm.policy import MeDQNPolicy
from medqn_tianshou.algorithm.samplers import make_state_sampler
from medqn_tianshou.algorithm.schedules import LinearSchedule
from medqn_tianshou.collecting.lean import LeanCollector
from medqn_tianshou.collecting.overlapping import OverlappingCollector
from medqn_tianshou.commands.parsing import Parser, check_replay_fits, memory_left
from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.envs.workers import DeadWorkerError
from medqn_tianshou.experiments.settings import Settings, setting_values
from medqn_tianshou.fast.optimizers import FusedRMSprop
from medqn_tianshou.fast.policy import FastMeDQNPolicy
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.tianshou_buffers import (
    predict_replay_nbytes,
    replay_nbytes,
    seed_replay_buffer,
)
from medqn_tianshou.training.checkpoints import Checkpoints
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.loop import RunError, Training
from medqn_tianshou.training.memory import MemoryLimit, MemoryMonitor, format_bytes, memory_limit
from medqn_tianshou.training.resuming import open_run, restore, run_identity
from medqn_tianshou.training.run_folder import describe_run
from medqn_tianshou.training.seeding import RunSeeds, seed_everything
from medqn_tianshou.training.signals import stop_on_signals
from medqn_tianshou.training.wandb_mirror import check_wandb, open_wandb

GRADIENT_CLOCK_OFF = sys.maxsize
"""A ``target_update_freq`` that never comes: the target network follows environment steps."""
CPP_COMPILERS = ("c++", "g++", "clang++")
"""Any of these serves torch.compile on a CPU."""


def build_policy(
    settings: Settings,
    *,
    model: torch.nn.Module,
    optim: torch.optim.Optimizer,
    observation_space: gym.Space[Any],
    action_space: gym.spaces.Discrete,
    sampler_seed: int,
    total_env_steps: int,
) -> MeDQNPolicy:
    """Build the policy that the settings describe.

    :param settings: all settings of the run.
    :param model: the Q network, on its device.
    :param optim: its optimizer.
    :param observation_space: the space of one observation.
    :param action_space: the actions.
    :param sampler_seed: seeds the state sampler.
    :param total_env_steps: the length of the run, over which lambda rises.
    """
    value = setting_values(settings)
    return FastMeDQNPolicy(
        model=model,
        optim=optim,
        action_space=action_space,
        observation_space=observation_space,
        discount_factor=value.gamma,
        estimation_step=value.n_step,
        target_update_freq=getattr(value, "target_update_freq", GRADIENT_CLOCK_OFF),
        is_double=value.double,
        clip_loss_grad=value.huber,
        state_sampler=make_state_sampler(
            value.sampling, observation_space=observation_space, seed=sampler_seed
        ),
        consolidation_coef=LinearSchedule(value.lambda_start, value.lambda_end, total_env_steps),
        consolidation_epochs=value.consolidation_epochs,
        consolidation_batch_size=value.consolidation_batch_size,
        consolidation_loss=value.consolidation_loss,
        consolidation_reduction=value.consolidation_reduction,
        max_grad_norm=getattr(value, "max_grad_norm", 0.0) or None,
    )


def make_training(
    parser: Parser,
    args: argparse.Namespace,
    settings: Settings,
    *,
    policy: MeDQNPolicy,
    train_envs: BaseVectorEnv,
    test_envs: BaseVectorEnv | None,
    seeds: RunSeeds,
    run_names: tuple[str, ...],
    total_env_steps: int,
    buffer_options: dict[str, Any] | None = None,
    **train_options: Any,
) -> Training:
    """Check the memory, create the run folder and build all that trains.

    :param parser: reports errors.
    :param args: the parsed command line.
    :param settings: all settings of the run.
    :param policy: the policy, on its device.
    :param train_envs: the environments to learn in.
    :param test_envs: the environments to evaluate in, if any.
    :param seeds: the run's seeds.
    :param run_names: the folders that lead to the run's.
    :param total_env_steps: the length of the run.
    :param buffer_options: options of the replay buffer.
    :param train_options: what else :class:`medqn_tianshou.training.loop.Training` takes.
    """
    value = setting_values(settings)
    if value.threads:
        torch.set_num_threads(value.threads)
    with _reported(parser):
        check_wandb(args.wandb, args.wandb_mode)
    limit = memory_limit()
    buffer, nbytes, promise = make_replay(
        parser,
        settings,
        example=example_transitions(policy.observation_space, len(train_envs)),
        limit=limit,
        **(buffer_options or {}),
    )
    seed_replay_buffer(buffer, seeds.replay)

    run, is_new = open_run(parser, args, settings, run_names)
    if is_new:
        run.write_json(
            "config.json",
            {
                "task": args.task,
                "algo": args.algo,
                "seed": args.seed,
                "device": str(args.device),
                "settings": {name: asdict(setting) for name, setting in sorted(settings.items())},
                "buffer_bytes_at_most": nbytes,
                "arguments": getattr(args, "arguments", None),
                **describe_run(),
            },
        )
    checkpoints = Checkpoints(
        run.path,
        identity=run_identity(args, settings),
        interval=args.checkpoint_every,
        keep=args.keep_checkpoints,
    )
    if not is_new and not checkpoints.paths():
        run.start_over()
    logs = run.logs()
    with _reported(parser):
        wandb = open_wandb(run, project=args.wandb, mode=args.wandb_mode, is_new=is_new)
    print(
        f"{args.algo} on {args.task}, seed {args.seed}: {total_env_steps:,} env steps, an update "
        f"every {value.step_per_collect}, lambda {value.lambda_start:g} to {value.lambda_end:g}\n"
        f"replay buffer: {promise}; {limit.source} limit {format_bytes(limit.nbytes)}, "
        f"{format_bytes(limit.available)} left\n"
        f"run folder: {run.path}\n"
        f"watch it: {tensorboard_command()} --logdir {args.logdir}",
        flush=True,
    )
    training = Training(
        policy=policy,
        train_collector=(OverlappingCollector if value.overlap else LeanCollector)(
            policy,
            train_envs,
            buffer,
            exploration_noise=True,
            # Real states are drawn from the buffer: no need to show each one as it comes.
            on_states=None if value.sampling == "real" else policy.state_sampler.observe,
        ),
        test_collector=(
            LeanCollector(policy, test_envs, exploration_noise=True) if test_envs else None
        ),
        run=run,
        monitor=MemoryMonitor(lambda: replay_nbytes(buffer), device=args.device),
        epsilon=LinearSchedule(value.eps_train, value.eps_train_final, value.eps_decay_steps),
        total_env_steps=total_env_steps,
        step_per_collect=value.step_per_collect,
        batch_size=0 if uses_whole_buffer(settings) else value.batch_size,
        show_progress=not args.no_progress,
        memory_cap=value.memory_cap,
        checkpoints=checkpoints,
        wandb=wandb,
        **train_options,
    )
    if not is_new:
        restore(parser, training, run, checkpoints, logs)
    return training


def run_training(training: Training) -> int:
    """Train, print the summary; return the exit code."""
    try:
        with stop_on_signals(training):
            summary = training.run()
    except (RunError, DeadWorkerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(summary.text(str(training.run_folder.path)))
    if summary.status == "interrupted":
        return 128 + (training.stop_signal or signal.SIGINT)
    return 0


def make_replay(
    parser: Parser, settings: Settings, *, example: Batch, limit: MemoryLimit, **options: Any
) -> tuple[ReplayBuffer, int, str]:
    """Build the replay buffer that the settings describe, if the memory allows it.

    :param parser: reports errors.
    :param settings: all settings of the run.
    :param example: one transition for each environment.
    :param limit: what the machine or container has.
    :param options: what else the buffer takes.
    :return: the buffer, the most bytes it will take, and this in words.
    """
    value = setting_values(settings)
    env_num = len(example)
    size = value.buffer_size
    if value.replay == "raw":

        def make_raw(total_size: int) -> ReplayBuffer:
            return VectorReplayBuffer(total_size, env_num, **options)

        nbytes = predict_replay_nbytes(make_raw, example, size)
        check_replay_fits(
            parser,
            size=size,
            nbytes=nbytes,
            multiple=env_num,
            smallest=value.batch_size,
            cap=value.memory_cap,
            limit=limit,
        )
        return make_raw(size), nbytes, f"{size:,} transitions will take {format_bytes(nbytes)}"
    left = memory_left(limit)
    nbytes = left if value.memory_cap is None else min(value.memory_cap, left)
    make_compact = partial(
        CompactVectorReplayBuffer, size, env_num, max_bytes=nbytes, random_seed=0, **options
    )
    try:
        make_compact().add(example)
    except ValueError as error:
        parser.bad("--memory-cap", format_bytes(nbytes), f"is too little: {error}")
    promise = f"up to {size:,} transitions, compact"
    if value.memory_cap is not None:
        promise += f", in at most {format_bytes(nbytes)}"
    return make_compact(), nbytes, promise


def tensorboard_command() -> str:
    """The command as the user has to type it, who may not have activated the environment."""
    beside = Path(sys.executable).with_name("tensorboard")
    if shutil.which("tensorboard") or not beside.exists():
        return "tensorboard"
    return str(Path(os.path.relpath(beside)))


def uses_whole_buffer(settings: Settings) -> bool:
    """Whether an update takes all transitions, instead of drawing some: MeDQN(U)'s one batch."""
    value = setting_values(settings)
    return bool(value.sampling == "uniform" and value.buffer_size == value.batch_size)


def make_env_clock_training(
    parser: Parser,
    args: argparse.Namespace,
    settings: Settings,
    *,
    make_env: Callable[[], gym.Env[Any, Any]],
    make_model: Callable[[gym.Env[Any, Any]], torch.nn.Module],
    watch_policy: Callable[[MeDQNPolicy, int], None] | None = None,
) -> Training:
    """Build a training in one environment whose clocks all count environment steps.

    :param parser: reports errors.
    :param args: the parsed command line.
    :param settings: all settings of the run.
    :param make_env: builds the environment to learn in.
    :param make_model: builds the Q network for it.
    :param watch_policy: called with the policy and the environment step before each collect.
    """
    value = setting_values(settings)
    seeds = seed_everything(args.seed)
    env: Any = make_env()
    envs = SingleVectorEnv(env)
    envs.seed(seeds.train_envs)
    test_envs = None
    if value.eval_every:
        test_envs = SingleVectorEnv(make_env())
        test_envs.seed(seeds.test_envs)
    model = make_model(env).to(args.device)
    policy = build_policy(
        settings,
        model=model,
        optim=make_optimizer(model, value.optimizer, value.lr),
        observation_space=env.observation_space,
        action_space=env.action_space,
        sampler_seed=seeds.state_sampler,
        total_env_steps=value.steps,
    )
    return make_training(
        parser,
        args,
        settings,
        policy=policy,
        train_envs=TimeoutIsTerminal(envs) if value.timeout_is_terminal else envs,
        test_envs=test_envs,
        seeds=seeds,
        run_names=env_clock_run_names(args),
        total_env_steps=value.steps,
        warmup_env_steps=value.warmup_steps,
        warmup_counts=True,
        step_per_epoch=value.eval_every or value.steps,
        epsilon_test=value.eps_test,
        episodes_per_test=value.eval_episodes,
        update_per_step=1 / value.step_per_collect,
        target_update_env_steps=value.target_update_env_steps,
        return_window=value.return_window,
        on_collect=None if watch_policy is None else partial(watch_policy, policy),
    )


@contextmanager
def _reported(parser: Parser) -> Iterator[None]:
    """Report a ConfigError as a bad flag."""
    try:
        yield
    except ConfigError as error:
        parser.bad(f"--{error.setting.replace('_', '-')}", error.value, error.remedy)


def env_clock_run_names(args: argparse.Namespace) -> tuple[str, ...]:
    """Name the folders that lead to the run of a training in one environment."""
    return args.task, args.algo, str(args.seed)


class TimeoutIsTerminal(VectorEnvWrapper):
    """Tells the agent that a cut episode has ended: nothing is bootstrapped there."""

    def step(self, action: Any, id: Any = None) -> Any:  # noqa: A002 (Tianshou's name)
        """Step, and turn truncations into terminations."""
        obs, rew, terminated, truncated, info = self.venv.step(action, id)
        return obs, rew, terminated | truncated, np.zeros_like(truncated), info


def make_optimizer(model: torch.nn.Module, name: str, lr: float) -> torch.optim.Optimizer:
    """Build the optimizer that a setting names.

    :param model: the network.
    :param name: ``"adam"``, ``"rmsprop"``, or ``"rmsprop-centered"`` with MinAtar's constants.
    :param lr: the learning rate.
    """
    parameters = model.parameters()
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr, fused=True)  # the same steps in one kernel
    if name == "rmsprop":
        return FusedRMSprop(parameters, lr=lr)
    if name == "rmsprop-centered":
        return FusedRMSprop(parameters, lr=lr, alpha=0.95, eps=0.01, centered=True)
    raise ValueError(f"optimizer={name!r} must be adam, rmsprop or rmsprop-centered")


def example_transitions(observation_space: Any, count: int) -> Batch:
    """Make one transition per environment in the form in which the collector stores them.

    :param observation_space: the space of one observation.
    :param count: how many environments.
    """
    obs = np.zeros((count, *observation_space.shape), observation_space.dtype)
    return Batch(
        obs=obs,
        obs_next=obs,
        act=np.zeros(count, np.int64),
        rew=np.zeros(count, np.float64),
        terminated=np.zeros(count, np.bool_),
        truncated=np.zeros(count, np.bool_),
    )
