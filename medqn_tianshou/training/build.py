"""Builds a training from its settings: policy, optimizer, and the run folder around them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from tianshou.env import BaseVectorEnv

from medqn_tianshou.algorithm.adaptive import AdaptiveCoefficient
from medqn_tianshou.algorithm.consolidation import EXTRA_STATE
from medqn_tianshou.algorithm.samplers import StateSampler, make_state_sampler
from medqn_tianshou.algorithm.schedules import LinearSchedule
from medqn_tianshou.collecting.lean import LeanCollector
from medqn_tianshou.collecting.overlapping import OverlappingCollector
from medqn_tianshou.envs.state import describe_resume
from medqn_tianshou.fast.optimizers import FusedRMSprop
from medqn_tianshou.fast.policy import FastMeDQNPolicy
from medqn_tianshou.files.extras import installed_command
from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.host.api import HEADS, Agent, make_agent
from medqn_tianshou.replay.reservoir import ReservoirStateSampler
from medqn_tianshou.replay.tianshou_buffers import replay_nbytes
from medqn_tianshou.training.checkpoint import Checkpoints
from medqn_tianshou.training.consolidation import DRIFT, STATE_BUFFER_SIZE
from medqn_tianshou.training.errors import ConfigError, reason_of
from medqn_tianshou.training.loop import Training
from medqn_tianshou.training.memory import MemoryMonitor, format_bytes
from medqn_tianshou.training.memory_plan import predict_states
from medqn_tianshou.training.options import RunOptions
from medqn_tianshou.training.replay_memory import Replay
from medqn_tianshou.training.resuming import open_run, restore
from medqn_tianshou.training.run_config import read_config
from medqn_tianshou.training.run_folder import RunFolder, describe_run
from medqn_tianshou.training.settings import NAMES, TrainingSettings
from medqn_tianshou.training.wandb_mirror import check_wandb, open_wandb


def build_policy(
    settings: TrainingSettings,
    *,
    model: torch.nn.Module,
    observation_space: gym.Space[Any],
    action_space: gym.spaces.Discrete,
    sampler_seed: int,
) -> Agent:
    """Build the policy that the settings describe, with its optimizer."""
    settings.require(
        settings.head == "dqn" or settings.head in HEADS, "head", "needs Tianshou 1.2; use dqn"
    )
    agent_class, head_options = HEADS.get(settings.head, (FastMeDQNPolicy, {}))
    return make_agent(
        agent_class,
        **head_options,
        model=model,
        optimizer=optimizer_of(settings.optimizer, settings.lr),
        action_space=action_space,
        observation_space=observation_space,
        gamma=settings.gamma,
        n_step=settings.n_step,
        # Not by gradient steps if the training loop counts environment steps.
        target_update_freq=settings.target_copy_gradient_steps or sys.maxsize,
        is_double=settings.double,
        huber=settings.huber,
        state_sampler=make_sampler(settings, observation_space, sampler_seed),
        consolidation_coef=make_coefficient(settings),
        consolidation_epochs=settings.consolidation_epochs,
        consolidation_batch_size=settings.consolidation_batch_size,
        consolidation_loss=settings.consolidation_loss,
        consolidation_reduction=settings.consolidation_reduction,
        max_grad_norm=settings.max_grad_norm or None,
    )


def make_coefficient(settings: TrainingSettings) -> LinearSchedule | AdaptiveCoefficient:
    """Build the schedule of lambda."""
    if settings.lambda_schedule == "auto":
        return AdaptiveCoefficient(settings.drift or DRIFT, start=settings.lambda_start)
    return LinearSchedule(settings.lambda_start, settings.lambda_end, settings.lambda_steps)


def make_sampler(
    settings: TrainingSettings, observation_space: gym.Space[Any], seed: int
) -> StateSampler:
    """Build the sampler of the states to consolidate on."""
    if settings.sampling != "reservoir":
        sampling = settings.sampling
        return make_state_sampler(sampling, observation_space=observation_space, seed=seed)
    nbytes = predict_states(settings, observation_space)
    return ReservoirStateSampler(
        observation_space=observation_space,
        capacity=settings.state_buffer_size or STATE_BUFFER_SIZE,
        max_bytes=None if settings.memory is None else nbytes,  # a plan has to hold
        seed=seed,
    )


def optimizer_of(name: str, lr: float) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return an optimizer's class and arguments; ``"rmsprop-centered"`` has MinAtar's constants."""
    if name == "adam":
        return torch.optim.Adam, {"lr": lr, "fused": True}  # the same steps in one kernel
    if name == "rmsprop":
        return FusedRMSprop, {"lr": lr}
    return FusedRMSprop, {"lr": lr, "alpha": 0.95, "eps": 0.01, "centered": True}


def load_parameters(policy: Agent, path: Path) -> None:
    """Load a policy's parameters from a file such as ``policy_best.safetensors``.

    :raises ConfigError: if the file does not fit.
    """
    try:
        parameters = read_parameters(path)
        parameters.pop(EXTRA_STATE, None)  # a new run counts, and samples, from its own start
        policy.load_parameters_by_name(parameters)
    except Exception as error:  # of many kinds, for a foreign file
        remedy = f"does not fit this task and network ({reason_of(error)}); name another"
        raise ConfigError("resume_path", path, remedy) from error


def make_collector(
    settings: TrainingSettings, policy: Agent, envs: BaseVectorEnv, replay: Replay
) -> LeanCollector:
    """Build the collector that explores and fills the replay buffer."""
    collector_class = OverlappingCollector if settings.overlap else LeanCollector
    return collector_class(
        policy,
        envs,
        replay.buffer,
        exploration_noise=True,
        # Real states are sampled from the buffer, so that sampler need not observe each state.
        on_states=None if settings.sampling == "real" else policy.state_sampler.observe,
    )


def open_folder(
    settings: TrainingSettings, options: RunOptions, buffer_nbytes: int
) -> tuple[RunFolder, bool, Checkpoints, list[Path]]:
    """Open the run folder, new or to resume, and write its settings.

    :return: the folder, whether it is new, its checkpoints and its logs so far.
    :raises ConfigError: if an option cannot be followed.
    """
    check_wandb(options.wandb, options.wandb_mode)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    run, is_new = open_run(settings, options)
    if not is_new and not settings.threads:
        _take_threads(read_config(run.path).torch_threads)
    if is_new:
        run.write_json(
            "config.json",
            {
                **{name: getattr(settings, name) for name in ("family", *NAMES)},
                "device": options.torch_device,
                "settings": settings.written(),
                "buffer_bytes_at_most": buffer_nbytes,
                "arguments": options.arguments,
                **describe_run(),
            },
        )
    checkpoints = Checkpoints(
        run.path,
        identity=settings.identity,
        interval=options.checkpoint_every,
        keep=options.keep_checkpoints,
    )
    if checkpoints.are_missing and not options.start_over:
        run.unlock()
        remedy = "has lost its checkpoints; restore them, or delete its logs with --start-over"
        raise ConfigError("resume", run.path, remedy)
    if not is_new and not checkpoints.paths():
        run.start_over()
        checkpoints.start_over()
    logs = run.logs()
    return run, is_new, checkpoints, logs


def make_training(
    settings: TrainingSettings,
    options: RunOptions,
    *,
    policy: Agent,
    replay: Replay,
    train_collector: LeanCollector,
    test_envs: BaseVectorEnv | None,
    on_collect: Callable[[int], None] | None = None,
) -> Training:
    """Open the run folder, new or to resume, and build the training.

    :param test_envs: the environments to evaluate in; None does not evaluate.
    :param on_collect: called with the environment step before each collect.
    :raises ConfigError: if an option cannot be followed.
    """
    run, is_new, checkpoints, logs = open_folder(settings, options, replay.nbytes_at_most)
    wandb = open_wandb(run, project=options.wandb, mode=options.wandb_mode, is_new=is_new)
    limit, plan = replay.limit, f"{replay.plan}\n" if replay.plan else ""
    print(
        f"{settings.algo} on {settings.task}, seed {settings.seed}: {settings.total_env_steps:,} "
        f"env steps, {settings.step_per_collect} per update\n"
        f"{_describe_lambda(settings)}\n"
        f"replay buffer: {replay.description}\n"
        f"memory: {format_bytes(limit.available)} free of {format_bytes(limit.nbytes)} "
        f"({limit.source})\n"
        f"{plan}resume: {describe_resume(train_collector.env)}\n"
        f"run folder: {run.path}\n"
        f"monitor: {installed_command('tensorboard')} --logdir {options.logdir}",
        flush=True,
    )
    training = Training(
        settings=settings,
        policy=policy,
        train_collector=train_collector,
        test_collector=(
            LeanCollector(policy, test_envs, exploration_noise=True) if test_envs else None
        ),
        run=run,
        monitor=MemoryMonitor(lambda: replay_nbytes(replay.buffer), device=options.torch_device),
        checkpoints=checkpoints,
        on_collect=on_collect,
        show_progress=options.show_progress,
        wandb=wandb,
    )
    if not is_new:
        restore(training, run, checkpoints, logs)
    return training


def _take_threads(count: int | None) -> None:
    """Use the number of threads that the run started with, as it affects rounding."""
    own = torch.get_num_threads()
    if count is not None and count != own:
        torch.set_num_threads(count)
        print(f"threads: {count}, as at the start of the run, instead of {own}", flush=True)


def _describe_lambda(settings: TrainingSettings) -> str:
    """Describe the schedule of lambda, and its final value in a run that is shorter."""
    schedule = make_coefficient(settings)
    if isinstance(schedule, AdaptiveCoefficient):
        return (
            f"lambda {schedule.low:g} to {schedule.high:g}, to keep the drift at {settings.drift}"
        )
    if schedule.start == schedule.end:
        return f"lambda {schedule.end:g}"
    length = f"{schedule.duration_env_steps:,} env steps"
    text = f"lambda {schedule.start:g} to {schedule.end:g} over {length}"
    if settings.total_env_steps >= settings.lambda_steps:
        return text
    return f"{text}, {schedule(settings.total_env_steps):.3g} at the end of this run"
