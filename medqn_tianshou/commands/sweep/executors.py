"""Where runs run, as a command line says it: processes of this machine, or Ray."""

import argparse
import sys
from collections.abc import Sequence

from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.commands.sweep.ray_executor import RayError, RayExecutor, has_ray
from medqn_tianshou.commands.sweep.runner import Executor, LocalExecutor

EXTRA = "pip install 'medqn-tianshou[sweep]'"


def add_runner_arguments(parser: Parser, *, jobs: str) -> None:
    """Add where and how often to run.

    :param parser: the parser to add to.
    :param jobs: the default of ``--jobs``, in words.
    """
    parser.add_argument(
        "--jobs", type=number(int, at_least=1), help=f"runs at a time (default: {jobs})"
    )
    parser.add_argument("--address", help="a Ray cluster to run on, e.g. auto or ray-head:6379")
    parser.add_argument(
        "--retries",
        type=number(int, at_least=0),
        default=2,
        help="how often to try a failed run again, from its checkpoint (default: 2)",
    )


def make_executor(
    parser: Parser, args: argparse.Namespace, plans: Sequence[RunPlan], *, use_ray: bool
) -> Executor:
    """Build what runs the runs, or report why it cannot.

    :param parser: reports errors.
    :param args: the parsed command line.
    :param plans: the runs.
    :param use_ray: whether to use Ray where no cluster is named.
    """
    if args.address is None and not use_ray:
        return LocalExecutor(args.jobs or 1)
    if not has_ray():
        parser.bad("--address", args.address, f"needs Ray; {EXTRA}")
    try:
        executor = RayExecutor(address=args.address, jobs=args.jobs)
    except RayError as error:
        if args.address is None:
            parser.error(f"Ray cannot be started here ({error}); add --no-ray")
        parser.bad("--address", args.address, f"cannot be used ({error}); see `ray status`")
    for plan in plans:
        misfit = executor.misfit(plan)
        if misfit and args.address is None:
            executor.close()
            parser.error(f"run {plan.name} {misfit}; lower its --threads or --buffer-size")
        if misfit:  # a cluster may grow
            print(f"warning: run {plan.name} {misfit}; it waits for one", file=sys.stderr)
    return executor
