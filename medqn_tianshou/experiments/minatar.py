"""Train MeDQN, or the DQN it is measured against, on a MinAtar game.

The defaults for a game and an algorithm are the paper's (Tables 7 to 10; freeway: our choice).
Needs the extra `minatar`, a package under the GPL. Examples:

  %(prog)s --game breakout --algo medqn-u
  %(prog)s --game seaquest --algo dqn --seed 3
"""

import argparse
import difflib
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.wrappers.time_limit import TimeLimit

from medqn_tianshou import MinAtarQNetwork
from medqn_tianshou.commands.flags import add_env_clock_flags, settle_env_clocks
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.envs.minatar import MINATAR_GAMES, MinAtarEnv
from medqn_tianshou.experiments.settings import Settings
from medqn_tianshou.training.build import make_env_clock_training, run_training
from medqn_tianshou.training.loop import Training
from medqn_tianshou.training.resuming import parse_arguments

FAMILY = "minatar"


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line.

    :param prog: the command that the user typed; None is the script's name.
    """
    parser = Parser(prog=prog, description=__doc__)
    run = add_env_clock_flags(parser, FAMILY)
    games = ", ".join(MINATAR_GAMES)
    run.add("--game", f"one of {games} (default: breakout)", default="breakout", dest="task")
    return parser


def resolve(parser: Parser, args: argparse.Namespace) -> Settings:
    """Settle all settings and check them against each other."""
    if args.task not in MINATAR_GAMES:
        nearest = difflib.get_close_matches(args.task, MINATAR_GAMES, n=1, cutoff=0.4)
        hint = nearest[0] if nearest else f"one of {', '.join(MINATAR_GAMES)}"
        parser.bad("--game", repr(args.task), f"is not a MinAtar game; did you mean {hint}?")
    return settle_env_clocks(parser, args, FAMILY)


def make_env(game: str, settings: Settings, *, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """Build the game with its full action set and the paper's episode limit.

    :param game: the game.
    :param settings: all settings of the run.
    :param render_mode: ``"rgb_array"`` or None.
    """
    env = MinAtarEnv(game=game, render_mode=render_mode)
    limit = settings["max_episode_steps"].value
    return TimeLimit(env, limit) if limit else env


def make_model(settings: Settings, env: gym.Env[Any, Any]) -> MinAtarQNetwork:
    """Build the network for the environment's spaces."""
    action_space: Any = env.action_space
    return MinAtarQNetwork(
        observation_shape=env.observation_space.shape or (),
        action_count=int(action_space.n),
        dueling=settings["dueling"].value,
    )


def prepare(parser: Parser, args: argparse.Namespace, settings: Settings) -> Training:
    """Build all that trains, and the run folder."""
    try:
        return make_env_clock_training(
            parser,
            args,
            settings,
            make_env=partial(make_env, args.task, settings),
            make_model=partial(make_model, settings),
        )
    except ImportError as error:
        parser.error(f"argument --game: {error}")


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line; None takes the process's.
    :param prog: the command that the user typed; None is the script's name.
    """
    parser = make_parser(prog)
    args = parse_arguments(parser, arguments)
    return run_training(prepare(parser, args, resolve(parser, args)))
