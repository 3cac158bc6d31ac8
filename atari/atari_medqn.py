#!/usr/bin/env python
"""Train MeDQN, or the DQN it is measured against, on an Atari game.

The defaults for a game are the paper's. Examples:

  python atari/atari_medqn.py --task QbertNoFrameskip-v4 --buffer-size 100000
  python atari/atari_medqn.py --task PhoenixNoFrameskip-v4 --algo dqn --memory-cap 8G
  python atari/atari_medqn.py --task QbertNoFrameskip-v4 --watch --resume-path RUN/policy_best.pth
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import torch
from tianshou.data import Batch, VectorReplayBuffer

from medqn_tianshou import LinearSchedule, MeDQNPolicy, NatureQNetwork
from medqn_tianshou.cli import (
    Parser,
    byte_size,
    check_replay_fits,
    default_device,
    existing_file,
    number,
    torch_device,
)
from medqn_tianshou.collector import LeanCollector
from medqn_tianshou.envs.atari import Backend, atari_tasks, make_atari_envs, nearest_task
from medqn_tianshou.loss import ConsolidationKind, Reduction
from medqn_tianshou.memory import MemoryMonitor, format_bytes, memory_limit
from medqn_tianshou.replay import predict_replay_nbytes, replay_nbytes, seed_replay_buffer
from medqn_tianshou.run_folder import RunFolder, describe_run
from medqn_tianshou.samplers import Sampling, make_state_sampler
from medqn_tianshou.seeding import RunSeeds, seed_everything
from medqn_tianshou.settings import Setting, describe_default, load_settings, resolve_settings
from medqn_tianshou.training import train

FAMILY = "atari"


def make_parser() -> Parser:
    """Build the command line. A flag whose default is in the settings file has None here."""
    parser = Parser(description=__doc__)
    count, share = number(int, at_least=1), number(float, at_least=0, at_most=1)
    weight = number(float, at_least=0)

    def add(group: Any, flag: str, text: str, **options: Any) -> None:
        if "default" not in options and "action" not in options:
            name = flag.removeprefix("--").replace("-", "_")
            text += f" (default: {describe_default(FAMILY, name)})"
        group.add_argument(flag, help=text, **options)

    run = parser.add_argument_group("what to run")
    add(run, "--task", "the game, e.g. QbertNoFrameskip-v4", default="QbertNoFrameskip-v4")
    add(
        run,
        "--algo",
        "medqn, or dqn: no consolidation, the paper's baseline (default: medqn)",
        choices=sorted(load_settings(FAMILY)["algo"]),
        default="medqn",
    )
    add(
        run,
        "--seed",
        "seeds environments, exploration, replay and torch (default: 0)",
        type=number(int, at_least=0),
        default=0,
    )
    add(run, "--epoch", "epochs; each ends with an evaluation", type=count)
    add(run, "--step-per-epoch", "environment steps per epoch, 4 frames each", type=count)
    add(
        run,
        "--env-backend",
        "EnvPool, or ale-py with OpenCV; both play the same game (default: envpool)",
        choices=get_args(Backend),
        default="envpool",
    )
    add(run, "--training-num", "training environments", type=count)
    add(run, "--test-num", "test environments, and episodes per evaluation", type=count)
    add(
        run,
        "--device",
        "torch device (default: cuda if there is one, else cpu)",
        type=torch_device,
        default=default_device(),
    )

    dqn = parser.add_argument_group("DQN")
    add(dqn, "--buffer-size", "transitions in the replay buffer", type=count)
    add(dqn, "--batch-size", "transitions per update", type=count)
    add(dqn, "--lr", "learning rate of Adam", type=number(float, above=0))
    add(dqn, "--gamma", "discount factor", type=share)
    add(dqn, "--n-step", "steps of reward before bootstrapping", type=count)
    add(dqn, "--target-update-freq", "gradient steps between target network copies", type=count)
    add(dqn, "--step-per-collect", "C_current: environment steps between updates", type=count)
    add(
        dqn,
        "--update-per-step",
        "updates per environment step (default: 1 / step-per-collect)",
        type=number(float, above=0),
        default=None,
    )
    add(dqn, "--frames-stack", "frames in an observation", type=count)
    add(dqn, "--eps-train", "first exploration rate", type=share)
    add(dqn, "--eps-train-final", "last exploration rate", type=share)
    add(dqn, "--eps-decay-steps", "environment steps from the first to the last", type=count)
    add(dqn, "--eps-test", "exploration rate in evaluations", type=share)
    add(
        dqn,
        "--warmup-steps",
        "environment steps before the first update (default: batch-size x training-num)",
        type=count,
        default=None,
    )
    add(dqn, "--double", "double DQN targets (default: off, as in the paper)", action="store_true")
    add(dqn, "--dueling", "dueling network (default: off)", action="store_true")
    add(dqn, "--huber", "Huber TD loss (default: squared error)", action="store_true")
    add(
        dqn,
        "--scale-obs",
        "1: scale pixels to [0, 1], 0: leave 0 to 255 as Tianshou's example does (default: 1)",
        type=int,
        choices=(0, 1),
        default=1,
    )

    medqn = parser.add_argument_group("knowledge consolidation")
    add(
        medqn,
        "--sampling",
        "states to consolidate on: MeDQN(R), MeDQN(U), or half of each (default: real)",
        choices=get_args(Sampling),
        default="real",
    )
    add(medqn, "--lambda-start", "weight of the term at the start", type=weight)
    add(medqn, "--lambda-end", "weight at the end, reached linearly by env step", type=weight)
    add(medqn, "--consolidation-epochs", "E: gradient steps per mini-batch", type=count)
    add(
        medqn,
        "--consolidation-batch-size",
        "states per gradient step (default: batch-size)",
        type=count,
        default=None,
    )
    add(
        medqn,
        "--consolidation-loss",
        "distance to the target network (default: mse)",
        choices=get_args(ConsolidationKind),
        default="mse",
    )
    add(
        medqn,
        "--consolidation-reduction",
        "over actions: mean as released, or sum as in the paper's equation (default: mean)",
        choices=get_args(Reduction),
        default="mean",
    )

    files = parser.add_argument_group("memory and files")
    add(
        files,
        "--memory-cap",
        "most bytes the replay buffer may take, e.g. 800M or 1.5G (default: what is free)",
        type=byte_size,
        default=None,
    )
    add(files, "--logdir", "where run folders go (default: log)", type=Path, default=Path("log"))
    add(
        files,
        "--resume-path",
        "start from the parameters in this file, e.g. policy_best.pth",
        type=existing_file,
        default=None,
    )
    add(files, "--watch", "play with the policy of --resume-path, no training", action="store_true")
    add(
        files,
        "--render",
        "with --watch: show the game, pausing this many seconds per step (default: 0, no window)",
        type=number(float, at_least=0),
        default=0.0,
    )
    add(files, "--no-progress", "draw no progress bar", action="store_true")
    return parser


def resolve(parser: Parser, args: argparse.Namespace) -> dict[str, Setting]:
    """Settle all settings and check them against each other."""
    if args.task not in atari_tasks():
        nearest = nearest_task(args.task)
        hint = f"did you mean {nearest}?" if nearest else "for example QbertNoFrameskip-v4 is one"
        parser.bad("--task", repr(args.task), f"is not an Atari task; {hint}")
    flags = {**vars(args), "device": str(args.device)}
    for name in ("task", "algo", "watch", "render", "no_progress", "logdir", "resume_path"):
        flags.pop(name)
    given = {name for name, value in flags.items() if value != parser.get_default(name)}
    settings = resolve_settings(FAMILY, algo=args.algo, task=args.task, flags=flags)
    for name in set(flags) - given:
        if settings.get(name, Setting(None, "")).source == "flag":
            settings[name] = Setting(flags[name], "ours")
    value = SimpleNamespace(**{name: setting.value for name, setting in settings.items()})

    def derive(name: str, default: Any) -> None:
        settings.setdefault(name, Setting(default, "derived"))

    derive("update_per_step", 1 / value.step_per_collect)
    derive("warmup_steps", value.batch_size * value.training_num)
    derive("consolidation_batch_size", value.batch_size)
    derive("memory_cap", None)
    if value.step_per_collect % value.training_num:
        parser.bad(
            "--training-num",
            value.training_num,
            f"does not divide the {value.step_per_collect} steps between updates; choose a divisor "
            "or another --step-per-collect",
        )
    updates = settings["update_per_step"].value * value.step_per_collect
    if round(updates) < 1:
        parser.bad(
            "--update-per-step",
            settings["update_per_step"].value,
            f"gives no update in {value.step_per_collect} steps; "
            f"take at least {1 / value.step_per_collect:g} or raise --step-per-collect",
        )
    smallest = value.training_num * (value.frames_stack + value.n_step)
    if value.buffer_size < smallest:
        parser.bad(
            "--buffer-size",
            value.buffer_size,
            f"cannot hold a frame stack and an n-step return; take at least {smallest}",
        )
    if args.algo == "dqn" and (value.lambda_end or value.lambda_start):
        parser.bad(
            "--lambda-end", value.lambda_end, "has no use with --algo dqn; take --algo medqn"
        )
    if args.watch and args.resume_path is None:
        parser.error("argument --watch: needs a policy; give --resume-path RUN/policy_best.pth")
    return settings


def build_policy(
    settings: dict[str, Setting], envs: Any, seeds: RunSeeds, total_env_steps: int
) -> MeDQNPolicy:
    """Build the policy that the settings describe.

    :param settings: all settings of the run.
    :param envs: environments whose spaces it must fit.
    :param seeds: the run's seeds.
    :param total_env_steps: the length of the run, over which lambda rises.
    """
    value = SimpleNamespace(**{name: setting.value for name, setting in settings.items()})
    observation_space, action_space = envs.observation_space[0], envs.action_space[0]
    model = NatureQNetwork(
        observation_shape=observation_space.shape,
        action_count=int(action_space.n),
        dueling=value.dueling,
        scale_uint8=bool(value.scale_obs),
    ).to(value.device)
    return MeDQNPolicy(
        model=model,
        optim=torch.optim.Adam(model.parameters(), lr=value.lr),
        action_space=action_space,
        observation_space=observation_space,
        discount_factor=value.gamma,
        estimation_step=value.n_step,
        target_update_freq=value.target_update_freq,
        is_double=value.double,
        clip_loss_grad=value.huber,
        state_sampler=make_state_sampler(
            value.sampling, observation_space=observation_space, seed=seeds.state_sampler
        ),
        consolidation_coef=LinearSchedule(value.lambda_start, value.lambda_end, total_env_steps),
        consolidation_epochs=value.consolidation_epochs,
        consolidation_batch_size=value.consolidation_batch_size,
        consolidation_loss=value.consolidation_loss,
        consolidation_reduction=value.consolidation_reduction,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    settings = resolve(parser, args)
    value = SimpleNamespace(**{name: setting.value for name, setting in settings.items()})
    seeds = seed_everything(args.seed)
    total_env_steps = value.epoch * value.step_per_epoch

    def make_envs(*, training: bool, render: bool = False) -> Any:
        return make_atari_envs(
            task=args.task,
            num_envs=value.training_num if training else value.test_num,
            seed=seeds.train_envs if training else seeds.test_envs,
            training=training,
            backend="ale" if render else args.env_backend,
            frames_stack=value.frames_stack,
            render_mode="human" if render else None,
        )

    test_envs = make_envs(training=False, render=args.render > 0)
    policy = build_policy(settings, test_envs, seeds, total_env_steps)
    if args.resume_path is not None:
        load_parameters(parser, policy, args.resume_path)
    test_collector = LeanCollector(policy, test_envs, exploration_noise=True)
    if args.watch:
        policy.set_eps(value.eps_test)
        test_collector.reset()
        stats = test_collector.collect(n_episode=value.test_num, render=args.render or None)
        print(f"returns {stats.returns.tolist()}, mean {stats.returns.mean():.2f}")
        return 0

    def make_buffer(size: int) -> VectorReplayBuffer:
        return VectorReplayBuffer(
            size,
            buffer_num=value.training_num,
            stack_num=value.frames_stack,
            ignore_obs_next=True,
            save_only_last_obs=True,
        )

    limit = memory_limit()
    example = example_transitions(test_envs.observation_space[0].shape, value.training_num)
    nbytes = predict_replay_nbytes(make_buffer, example, value.buffer_size)
    check_replay_fits(
        parser,
        size=value.buffer_size,
        nbytes=nbytes,
        multiple=value.training_num,
        cap=value.memory_cap,
        limit=limit,
    )
    buffer = make_buffer(value.buffer_size)
    seed_replay_buffer(buffer, seeds.replay)

    run = create_run_folder(parser, args)
    run.write_json(
        "config.json",
        {
            "task": args.task,
            "algo": args.algo,
            "seed": args.seed,
            "settings": {name: asdict(setting) for name, setting in sorted(settings.items())},
            "buffer_bytes_predicted": nbytes,
            **describe_run(),
        },
    )
    print(
        f"{args.algo} on {args.task}, seed {args.seed}: {total_env_steps:,} env steps, an update "
        f"every {value.step_per_collect}, lambda {value.lambda_start:g} to {value.lambda_end:g}\n"
        f"replay buffer: {value.buffer_size:,} transitions will take {format_bytes(nbytes)}; "
        f"{limit.source} limit {format_bytes(limit.nbytes)}, "
        f"{format_bytes(limit.available)} left\n"
        f"run folder: {run.path}\n"
        f"watch it: tensorboard --logdir {args.logdir}",
        flush=True,
    )
    train_collector = LeanCollector(
        policy,
        make_envs(training=True),
        buffer,
        exploration_noise=True,
        on_step_hook=policy.observe_step,
    )
    summary = train(
        policy=policy,
        train_collector=train_collector,
        test_collector=test_collector,
        run=run,
        monitor=MemoryMonitor(lambda: replay_nbytes(buffer)),
        epsilon=LinearSchedule(value.eps_train, value.eps_train_final, value.eps_decay_steps),
        epsilon_test=value.eps_test,
        warmup_env_steps=value.warmup_steps,
        epochs=value.epoch,
        step_per_epoch=value.step_per_epoch,
        step_per_collect=value.step_per_collect,
        update_per_step=value.update_per_step,
        batch_size=value.batch_size,
        episodes_per_test=value.test_num,
        show_progress=not args.no_progress,
    )
    print(summary.text(str(run.path)))
    return 130 if summary.status == "interrupted" else 0


def example_transitions(observation_shape: tuple[int, ...], count: int) -> Batch:
    """Make one transition per environment in the form in which the collector stores them."""
    return Batch(
        obs=np.zeros((count, *observation_shape), np.uint8),
        act=np.zeros(count, np.int64),
        rew=np.zeros(count, np.float64),
        terminated=np.zeros(count, np.bool_),
        truncated=np.zeros(count, np.bool_),
    )


def create_run_folder(parser: Parser, args: argparse.Namespace) -> RunFolder:
    """Make the run's folder, or report why it cannot be made."""
    name = args.algo if args.algo == "dqn" else f"{args.algo}-{args.sampling}"
    try:
        return RunFolder.create(args.logdir, args.task, name, str(args.seed))
    except OSError as error:
        reason = error.strerror or str(error)
        parser.bad("--logdir", args.logdir, f"cannot hold run folders ({reason}); name another")


def load_parameters(parser: Parser, policy: MeDQNPolicy, path: Path) -> None:
    """Load a policy's parameters, or report why the file does not fit."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        policy.load_state_dict(state)
    except Exception as error:  # torch raises many kinds for a foreign file
        reason = str(error).splitlines()[0]
        parser.bad(
            "--resume-path", path, f"does not fit this task and network ({reason}); name another"
        )


if __name__ == "__main__":
    sys.exit(main())
