"""Play episodes with a trained policy and print their scores.

Atari scores are unclipped scores of whole games; those of other tasks are sums of rewards.

Examples:
  %(prog)s log/QbertNoFrameskip-v4/medqn-r/0/20260101-120000 --episodes 30
  %(prog)s log/MountainCar-v0/medqn-u/0/20260101-120000/policy_last.safetensors --seed 1 --json

"""

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from medqn_tianshou.commands.agent import Agent, AgentError, Moment
from medqn_tianshou.commands.parsing import Parser, number


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line; ``prog`` is the command that the user typed."""
    parser = Parser(prog=prog, description=__doc__)
    add_agent_arguments(parser)
    parser.add_argument(
        "--episodes",
        type=number(int, at_least=1),
        default=10,
        help="number of episodes (default: 10)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def add_agent_arguments(parser: Parser) -> None:
    """Add which policy plays, and how."""
    parser.add_argument(
        "policy",
        type=Path,
        metavar="RUN_OR_POLICY",
        help="a policy file; a run folder (uses its policy_best file, else policy_last); or a "
        "folder such as log, or a task (uses its newest run)",
    )
    parser.add_argument(
        "--seed",
        type=number(int, at_least=0),
        default=0,
        help="random seed of the episodes (default: 0)",
    )
    parser.add_argument(
        "--eps",
        type=number(float, at_least=0, at_most=1),
        help="probability of a random action (default: the run's --eps-test)",
    )


def load_agent(
    parser: Parser, policy: Path, *, seed: int, eps: float | None, renders: bool = False
) -> Agent:
    """Load the policy that the command line names, or report why not; see :class:`Agent`."""
    try:
        return Agent(policy, seed=seed, epsilon=eps, renders=renders)
    except AgentError as error:
        parser.bad("RUN_OR_POLICY", policy, str(error))


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    agent = load_agent(parser, args.policy, seed=args.seed, eps=args.eps)
    lasts: list[Moment] = []
    try:
        for _ in tqdm(range(args.episodes), desc=agent.task, unit=" episodes", leave=False):
            lasts += deque(agent.play(), maxlen=1)  # the last moment of the episode
    except KeyboardInterrupt:
        print(f"stopped after {len(lasts)} of {args.episodes} episodes")
        return 130
    scores = np.array([last.score for last in lasts])
    result = {
        "policy": str(agent.file),
        "task": agent.task,
        "algo": agent.algo,
        "seed": args.seed,
        "epsilon": agent.epsilon,
        "episodes": args.episodes,
        "scores": scores.tolist(),
        "lengths": [last.step + 1 for last in lasts],
        "mean": float(scores.mean()),
        "std": float(scores.std()),
    }
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    print(
        f"{agent.algo} on {agent.task}, {agent.file}\n"
        f"scores  {' '.join(f'{score:g}' for score in scores)}\n"
        f"mean    {scores.mean():.2f}\n"
        f"std     {scores.std():.2f} over {args.episodes} episodes, epsilon {agent.epsilon:g}"
    )
    return 0
