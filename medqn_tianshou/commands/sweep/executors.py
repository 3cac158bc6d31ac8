"""Chooses what runs the runs: processes of this machine, or Ray."""

import sys
from collections.abc import Sequence

from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.commands.sweep.ray_executor import RayError, RayExecutor, has_ray
from medqn_tianshou.commands.sweep.runner import Executor, LocalExecutor
from medqn_tianshou.training.errors import ConfigError

EXTRA = "pip install 'medqn-tianshou[sweep]'"


def add_runner_arguments(parser: Parser, *, jobs: str) -> None:
    """Add where and how often to run; ``jobs`` is the default of ``--jobs``, in words."""
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
    plans: Sequence[RunPlan], *, jobs: int | None, address: str | None, use_ray: bool
) -> Executor:
    """Build what runs the runs.

    :param plans: the runs.
    :param jobs: how many at a time; None is one on this machine, and as many as fit on Ray.
    :param address: a Ray cluster; None is this machine.
    :param use_ray: whether to use Ray where no cluster is named.
    :raises ConfigError: if the cluster cannot be used.
    :raises RayError: if Ray cannot be used on this machine.
    """
    if address is None and not use_ray:
        return LocalExecutor(jobs or 1)
    if not has_ray():
        raise ConfigError("address", address, f"needs Ray; {EXTRA}")
    try:
        executor = RayExecutor(address=address, jobs=jobs)
    except RayError as error:
        if address is None:
            raise RayError(f"Ray cannot be started here ({error}); add --no-ray") from error
        remedy = f"cannot be used ({error}); see `ray status`"
        raise ConfigError("address", address, remedy) from error
    for plan in plans:
        misfit = executor.misfit(plan)
        if misfit and address is None:
            executor.close()
            raise RayError(f"run {plan.name} {misfit}; lower its --threads or --buffer-size")
        if misfit:  # a cluster may grow
            print(f"warning: run {plan.name} {misfit}; it waits for one", file=sys.stderr)
    return executor
