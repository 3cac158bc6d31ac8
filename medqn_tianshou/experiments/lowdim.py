"""Train MeDQN, or the DQN it is measured against, on a low-dimensional task.

The defaults for a task and an algorithm are the paper's (Tables 3 to 6). Examples:

  %(prog)s --task MountainCar-v0 --algo medqn-u
  %(prog)s --task Catcher --algo dqn-s --seed 3
"""

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym

from medqn_tianshou import MeDQNPolicy, MLPQNetwork
from medqn_tianshou.commands.flags import add_env_clock_flags, settle_env_clocks
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.envs.registration import register_envs
from medqn_tianshou.experiments.settings import Settings, load_settings
from medqn_tianshou.training.build import make_env_clock_training, run_training
from medqn_tianshou.training.loop import Training
from medqn_tianshou.training.resuming import parse_arguments

FAMILY = "lowdim"
ENV_IDS = {"Catcher": "medqn/Catcher-v0", "Pixelcopter": "medqn/Pixelcopter-v0"}


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line.

    :param prog: the command that the user typed; None is the script's name.
    """
    parser = Parser(prog=prog, description=__doc__)
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


def make_env(task: str, settings: Settings, *, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Build the environment with the paper's episode limit.

    :param task: the task.
    :param settings: all settings of the run.
    :param render_mode: ``"rgb_array"`` or None.
    """
    limit = settings["max_episode_steps"].value or sys.maxsize
    register_envs()
    return gym.make(ENV_IDS.get(task, task), max_episode_steps=limit, render_mode=render_mode)


def make_model(settings: Settings, env: gym.Env[Any, Any]) -> MLPQNetwork:
    """Build the network for the environment's spaces."""
    action_space: Any = env.action_space
    return MLPQNetwork(
        observation_shape=env.observation_space.shape or (),
        action_count=int(action_space.n),
        hidden_sizes=settings["hidden_sizes"].value,
        dueling=settings["dueling"].value,
    )


def prepare(
    parser: Parser,
    args: argparse.Namespace,
    settings: Settings,
    *,
    watch_policy: Callable[[MeDQNPolicy, int], None] | None = None,
) -> Training:
    """Build all that trains, and the run folder.

    :param parser: reports errors.
    :param args: the parsed command line.
    :param settings: all settings of the run.
    :param watch_policy: called with the policy and the environment step before each collect.
    """
    return make_env_clock_training(
        parser,
        args,
        settings,
        make_env=partial(make_env, args.task, settings),
        make_model=partial(make_model, settings),
        watch_policy=watch_policy,
    )


def main(
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
    *,
    watch_policy: Callable[[MeDQNPolicy, int], None] | None = None,
) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line; None takes the process's.
    :param prog: the command that the user typed; None is the script's name.
    :param watch_policy: called with the policy and the environment step before each collect.
    """
    parser = make_parser(prog)
    args = parse_arguments(parser, arguments)
    settings = resolve(parser, args)
    return run_training(prepare(parser, args, settings, watch_policy=watch_policy))
