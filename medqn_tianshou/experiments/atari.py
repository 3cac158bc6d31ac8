"""Train MeDQN, or the DQN it is measured against, on an Atari game.

The defaults are the paper's for the game, but for pixels, which are scaled (--scale-obs). Examples:

  %(prog)s --task QbertNoFrameskip-v4 --buffer-size 100000
  %(prog)s --task PhoenixNoFrameskip-v4 --algo dqn --memory-cap 8G
  %(prog)s --task QbertNoFrameskip-v4 --watch --resume-path RUN/policy_best.pth
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import gymnasium as gym
import torch

from medqn_tianshou import LeanCollector, MeDQNPolicy, NatureQNetwork
from medqn_tianshou.algorithm.samplers import Sampling
from medqn_tianshou.commands.flags import (
    COUNT,
    SHARE,
    add_consolidation_flags,
    add_dqn_flags,
    add_file_flags,
    add_run_flags,
    add_speed_flags,
    settle,
)
from medqn_tianshou.commands.parsing import Parser, default_device, existing_file, number
from medqn_tianshou.envs.atari import Backend, atari_tasks, make_atari_envs, nearest_task
from medqn_tianshou.experiments.settings import Setting, Settings, setting_values
from medqn_tianshou.training.build import build_policy, make_optimizer, make_training, run_training
from medqn_tianshou.training.loop import Training
from medqn_tianshou.training.resuming import parse_arguments
from medqn_tianshou.training.seeding import seed_everything

FAMILY = "atari"


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line.

    :param prog: the command that the user typed; None is the script's name.
    """
    parser = Parser(prog=prog, description=__doc__)
    run = add_run_flags(parser, FAMILY, device=default_device())
    run.add("--task", "the game (default: Qbert)", default="QbertNoFrameskip-v4")
    run.add("--epoch", "epochs; each ends with an evaluation", type=COUNT)
    run.add("--step-per-epoch", "environment steps per epoch, 4 frames each", type=COUNT)
    run.add("--training-num", "training environments", type=COUNT)
    run.add("--test-num", "test environments, and episodes per evaluation", type=COUNT)
    run.add(
        "--env-backend",
        "EnvPool or ale-py, which play the same game; auto: ale-py for one environment",
        choices=get_args(Backend),
    )

    dqn = add_dqn_flags(parser, FAMILY)
    dqn.add("--target-update-freq", "gradient steps between target network copies", type=COUNT)
    dqn.add(
        "--update-per-step",
        "updates per environment step (default: 1 / step-per-collect)",
        type=number(float, above=0),
        default=None,
    )
    dqn.add(
        "--warmup-steps",
        "environment steps before the first update (default: batch-size x training-num)",
        type=COUNT,
        default=None,
    )
    dqn.add("--frames-stack", "frames in an observation", type=COUNT)
    dqn.add("--eps-test", "exploration rate in evaluations", type=SHARE)
    dqn.add(
        "--scale-obs",
        "1: scale pixels to [0, 1], 0: leave 0 to 255 as Tianshou's example does",
        type=int,
        choices=(0, 1),
    )

    medqn = add_consolidation_flags(parser, FAMILY)
    medqn.add(
        "--sampling",
        "states to consolidate on: MeDQN(R), MeDQN(U), or half of each",
        choices=get_args(Sampling),
    )

    add_speed_flags(parser, FAMILY)
    files = add_file_flags(parser, FAMILY)
    files.add(
        "--resume-path",
        "start from the parameters in this file, e.g. policy_best.pth",
        type=existing_file,
        default=None,
    )
    files.add(
        "--watch",
        "play with the policy of --resume-path, no training",
        action="store_true",
        default=False,
    )
    files.add(
        "--render",
        "with --watch: show the game, pausing this many seconds per step (default: 0, no window)",
        type=number(float, at_least=0),
        default=0.0,
    )
    return parser


def resolve(parser: Parser, args: argparse.Namespace) -> Settings:
    """Settle all settings and check them against each other."""
    if not atari_tasks():
        parser.error("argument --task: no Atari games here; pip install 'medqn-tianshou[atari]'")
    if args.task not in atari_tasks():
        nearest = nearest_task(args.task)
        hint = f"did you mean {nearest}?" if nearest else "for example QbertNoFrameskip-v4 is one"
        parser.bad("--task", repr(args.task), f"is not an Atari task; {hint}")
    settings = settle(parser, args, FAMILY)
    value = setting_values(settings)
    update_per_step = settings.setdefault(
        "update_per_step", Setting(1 / value.step_per_collect, "derived")
    ).value
    settings.setdefault("warmup_steps", Setting(value.batch_size * value.training_num, "derived"))
    if value.step_per_collect % value.training_num:
        parser.bad(
            "--training-num",
            value.training_num,
            f"does not divide the {value.step_per_collect} steps between updates; choose a divisor "
            "or another --step-per-collect",
        )
    if value.step_per_epoch % value.step_per_collect:
        parser.bad(
            "--step-per-epoch",
            value.step_per_epoch,
            f"is not a multiple of the {value.step_per_collect} steps between updates; take "
            f"{-(-value.step_per_epoch // value.step_per_collect) * value.step_per_collect}",
        )
    if round(update_per_step * value.step_per_collect) < 1:
        parser.bad(
            "--update-per-step",
            update_per_step,
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
    if value.buffer_size < value.batch_size:
        parser.bad(
            "--buffer-size",
            value.buffer_size,
            f"is less than a batch; take at least {value.batch_size} or a smaller --batch-size",
        )
    if args.watch and args.resume_path is None:
        parser.error("argument --watch: needs a policy; give --resume-path RUN/policy_best.pth")
    if args.render and not args.watch:
        parser.bad("--render", args.render, "shows nothing in training; add --watch")
    if args.watch and args.resume is not None:
        parser.bad("--resume", args.resume, "trains; to watch, give --resume-path and no --resume")
    if value.lambda_end > 0 and value.sampling != "real":
        print(
            f"warning: --sampling {value.sampling} draws each pixel by itself: no game shows such "
            "frames, and what is learned on them tells little of those it shows; the paper takes "
            "real",
            file=sys.stderr,
        )
    return settings


def make_model(settings: Settings, env: Any, device: torch.device | str = "cpu") -> NatureQNetwork:
    """Build the network for an environment's spaces.

    :param settings: all settings of the run.
    :param env: one environment, or whatever has its spaces.
    :param device: where the network will be.
    """
    value = setting_values(settings)
    return NatureQNetwork(
        observation_shape=env.observation_space.shape,
        action_count=int(env.action_space.n),
        dueling=value.dueling,
        scale_uint8=bool(value.scale_obs),
        channels_last=torch.device(device).type == "cpu",  # faster there, see docs/speed.md
    ).to(device)


def make_policy(
    settings: Settings, *, device: torch.device | str, envs: Any, sampler_seed: int
) -> MeDQNPolicy:
    """Build network, optimizer and policy for the environments' spaces."""
    value = setting_values(settings)
    spaces = SimpleNamespace(
        observation_space=envs.observation_space[0], action_space=envs.action_space[0]
    )
    model = make_model(settings, spaces, device)
    return build_policy(
        settings,
        model=model,
        optim=make_optimizer(model, "adam", value.lr),
        observation_space=spaces.observation_space,
        action_space=spaces.action_space,
        sampler_seed=sampler_seed,
        total_env_steps=value.epoch * value.step_per_epoch,
    )


def prepare(parser: Parser, args: argparse.Namespace, settings: Settings) -> Training:
    """Build all that trains, and the run folder."""
    value = setting_values(settings)
    seeds = seed_everything(args.seed)
    test_envs = make_envs(args, settings, seed=seeds.test_envs, training=False)
    policy = make_policy(
        settings, device=args.device, envs=test_envs, sampler_seed=seeds.state_sampler
    )
    if args.resume_path is not None:
        load_parameters(parser, policy, args.resume_path)
    return make_training(
        parser,
        args,
        settings,
        policy=policy,
        train_envs=make_envs(args, settings, seed=seeds.train_envs, training=True),
        test_envs=test_envs,
        buffer_options=buffer_options(settings),
        seeds=seeds,
        run_names=run_names(args, settings),
        total_env_steps=value.epoch * value.step_per_epoch,
        epsilon_test=value.eps_test,
        warmup_env_steps=value.warmup_steps,
        step_per_epoch=value.step_per_epoch,
        update_per_step=value.update_per_step,
        episodes_per_test=value.test_num,
    )


def run_names(args: argparse.Namespace, settings: Settings) -> tuple[str, ...]:
    """Name the folders that lead to a run's."""
    algorithm = args.algo if args.algo == "dqn" else f"{args.algo}-{settings['sampling'].value}"
    return args.task, algorithm, str(args.seed)


def buffer_options(settings: Settings) -> dict[str, Any]:
    """Tell the replay buffer to store each frame once."""
    return {
        "stack_num": settings["frames_stack"].value,
        "ignore_obs_next": True,
        "save_only_last_obs": True,
    }


def make_envs(args: argparse.Namespace, settings: Settings, *, seed: int, training: bool) -> Any:
    """Build the environments to learn in, or to evaluate in."""
    value = setting_values(settings)
    render = args.render > 0
    num_envs = value.training_num if training else value.test_num
    return make_atari_envs(
        task=args.task,
        num_envs=1 if render else num_envs,
        seed=seed,
        training=training,
        backend="ale" if render else value.env_backend,
        frames_stack=value.frames_stack,
        render_mode="human" if render else None,
    )


def make_env(
    task: str, settings: Settings, *, seed: int = 0, render_mode: str | None = None
) -> gym.Env[Any, Any]:
    """Build one environment that plays whole games for their own scores.

    :param task: the game.
    :param settings: all settings of the run.
    :param seed: its play follows from it and from the actions alone.
    :param render_mode: ``"rgb_array"`` or None.
    """
    envs = make_atari_envs(
        task=task,
        num_envs=1,
        seed=seed,
        training=False,
        backend="ale",
        frames_stack=settings["frames_stack"].value,
        render_mode=render_mode,
    )
    env: gym.Env[Any, Any] = envs.get_env_attr("unwrapped")[0]
    return env


def watch(parser: Parser, args: argparse.Namespace, settings: Settings) -> None:
    """Play with a trained policy and print the scores."""
    value = setting_values(settings)
    seeds = seed_everything(args.seed)
    envs = make_envs(args, settings, seed=seeds.test_envs, training=False)
    policy = make_policy(settings, device=args.device, envs=envs, sampler_seed=seeds.state_sampler)
    load_parameters(parser, policy, args.resume_path)
    policy.set_eps(value.eps_test)
    collector = LeanCollector(policy, envs, exploration_noise=True)
    collector.reset()
    stats = collector.collect(n_episode=value.test_num, render=args.render or None)
    print(f"returns {stats.returns.tolist()}, mean {stats.returns.mean():.2f}")


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line; None takes the process's.
    :param prog: the command that the user typed; None is the script's name.
    """
    parser = make_parser(prog)
    args = parse_arguments(parser, arguments)
    settings = resolve(parser, args)
    if args.watch:
        watch(parser, args, settings)
        return 0
    return run_training(prepare(parser, args, settings))


def load_parameters(parser: Parser, policy: MeDQNPolicy, path: Path) -> None:
    """Load a policy's parameters, or report why the file does not fit."""
    try:
        policy.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many kinds for a foreign file
        reason = str(error).splitlines()[0]
        parser.bad(
            "--resume-path", path, f"does not fit this task and network ({reason}); name another"
        )
