#!/usr/bin/env python
"""Train MeDQN, or the DQN it is measured against, on a low-dimensional task.

The defaults for a task and an algorithm are the paper's (Tables 3 to 6). Examples:

  python lowdim/lowdim_medqn.py --task MountainCar-v0 --algo medqn-u
  python lowdim/lowdim_medqn.py --task Catcher --algo dqn-s --seed 3
"""

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from tianshou.env import DummyVectorEnv

from medqn_tianshou import MeDQNPolicy, MLPQNetwork
from medqn_tianshou.cli import Parser
from medqn_tianshou.flags import add_env_clock_flags, settle_env_clocks
from medqn_tianshou.job import build_policy, make_optimizer, run_env_clock_job
from medqn_tianshou.seeding import seed_everything
from medqn_tianshou.settings import Settings, load_settings, setting_values

FAMILY = "lowdim"
ENV_IDS = {"Catcher": "medqn/Catcher-v0", "Pixelcopter": "medqn/Pixelcopter-v0"}


def make_parser() -> Parser:
    """Build the command line."""
    parser = Parser(description=__doc__)
    run = add_env_clock_flags(parser, FAMILY)
    tasks = list(load_settings(FAMILY)["task"])
    run.add("--task", f"one of {', '.join(tasks)} (default: {tasks[0]})", default=tasks[0])
    return parser


def resolve(parser: Parser, args: argparse.Namespace) -> Settings:
    """Settle all settings and check them against each other."""
    tasks = list(load_settings(FAMILY)["task"])
    if args.task not in tasks:
        nearest = difflib.get_close_matches(args.task, tasks, n=1, cutoff=0.4)
        hint = f"did you mean {nearest[0]}?" if nearest else f"choose from {', '.join(tasks)}"
        parser.bad("--task", repr(args.task), f"is not a task of the paper; {hint}")
    return settle_env_clocks(parser, args, FAMILY)


def make_env(task: str, settings: Settings) -> gym.Env[Any, Any]:
    """Build the environment with the paper's episode limit."""
    limit = settings["max_episode_steps"].value or sys.maxsize
    return gym.make(ENV_IDS.get(task, task), max_episode_steps=limit)


def make_policy(
    settings: Settings,
    *,
    device: torch.device | str,
    env: gym.Env[Any, Any],
    sampler_seed: int,
) -> MeDQNPolicy:
    """Build network, optimizer and policy for the environment's spaces."""
    value = setting_values(settings)
    action_space: Any = env.action_space
    model = MLPQNetwork(
        observation_shape=env.observation_space.shape or (),
        action_count=int(action_space.n),
        hidden_sizes=value.hidden_sizes,
        dueling=value.dueling,
    ).to(device)
    return build_policy(
        settings,
        model=model,
        optim=make_optimizer(model, value.optimizer, value.lr),
        observation_space=env.observation_space,
        action_space=action_space,
        sampler_seed=sampler_seed,
        total_env_steps=value.steps,
    )


def main(
    arguments: Sequence[str] | None = None,
    *,
    watch_policy: Callable[[MeDQNPolicy, int], None] | None = None,
) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line.
    :param watch_policy: called with the policy and the environment step before each collect.
    """
    parser = make_parser()
    args = parser.parse_args(arguments)
    settings = resolve(parser, args)
    seeds = seed_everything(args.seed)
    make = partial(make_env, args.task, settings)
    policy = make_policy(settings, device=args.device, env=make(), sampler_seed=seeds.state_sampler)
    return run_env_clock_job(
        parser,
        args,
        settings,
        policy=policy,
        envs=DummyVectorEnv([make]),
        seeds=seeds,
        on_collect=None if watch_policy is None else partial(watch_policy, policy),
    )


if __name__ == "__main__":
    sys.exit(main())
