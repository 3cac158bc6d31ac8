"""Executors of runs: local processes, or Ray, on this machine or on a cluster."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.sweep import attempts
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.training.errors import ConfigError, reason_of
from medqn_tianshou.training.memory import format_bytes, memory_limit

EXTRA = install_command("sweep")
CONNECT_SECONDS = 10
OBJECT_STORE_NBYTES = 80_000_000
"""About the least that Ray accepts: runs return an exit code and nothing else."""


class RayError(Exception):
    """Ray cannot be used; the message is for the user."""


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: with an exit code, or in another way."""

    plan: RunPlan
    exit_code: int | None
    problem: str = ""


class LocalExecutor:
    """Processes of this machine, at most ``jobs`` at a time."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._processes: dict[str, tuple[RunPlan, subprocess.Popen[bytes]]] = {}
        self._memory_left = memory_limit().available

    def has_room(self, plan: RunPlan) -> bool:
        """Whether one more process may run, and its memory fits; one run is always started."""
        taken = sum(other.memory_nbytes for other, _ in self._processes.values())
        return not self._processes or (
            len(self._processes) < self._jobs and taken + plan.memory_nbytes <= self._memory_left
        )

    def start(self, plan: RunPlan, output: Path) -> None:
        """Start an attempt; ``output`` is the file for its output."""
        self._processes[plan.name] = plan, self._start(plan, output)

    def _start(self, plan: RunPlan, output: Path) -> subprocess.Popen[bytes]:
        return attempts.start(plan.arguments, str(output), plan.cpus)

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most so many seconds for an attempt to end; return those that have ended."""
        end = time.monotonic() + seconds
        while True:
            ended = [
                Ended(plan, process.returncode)
                for plan, process in self._processes.values()
                if process.poll() is not None
            ]
            if ended or time.monotonic() >= end:
                break
            time.sleep(attempts.POLL_SECONDS)
        for one in ended:
            del self._processes[one.plan.name]
        return ended

    def stop(self) -> None:
        """Stop all runs, with checkpoints."""
        for _, process in self._processes.values():
            process.terminate()
        for _, process in self._processes.values():
            process.wait()

    def close(self) -> None:
        """Kill all remaining processes."""
        for _, process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()


class RayExecutor:
    """Processes that Ray places by their CPUs, GPUs and memory.

    :param address: of a cluster, or ``"auto"``; None starts Ray on this machine.
    :param jobs: how many at a time at most; None leaves it to Ray.
    """

    def __init__(self, *, address: str | None = None, jobs: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's default from its next version on; unset, Ray warns at each start.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray
        from ray import cloudpickle

        if address is not None:
            _check_reachable(
                os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
            )
        self._ray: Any = ray
        self._jobs = jobs
        self._running: dict[Any, RunPlan] = {}
        options: dict[str, Any] = {"address": address}
        if address is None:
            options = {
                "address": "local",
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_NBYTES,
                "_memory": max(memory_limit().available - OBJECT_STORE_NBYTES, 1),
            }
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:  # Ray raises many kinds; a plain one if it starts too slowly
            raise RayError(reason_of(error)) from error
        # By value: a worker that imported this package would take as much memory as a run.
        cloudpickle.register_pickle_by_value(attempts)
        self._attempt = ray.remote(attempts.attempt)

    def misfit(self, plan: RunPlan) -> str:
        """Describe what a run needs that no node has; empty if a node has it."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        needs = {"CPU": plan.cpus, "GPU": plan.gpus, "memory": plan.memory_nbytes}
        if any(all(node.get(k, 0) >= n for k, n in needs.items()) for node in nodes):
            return ""
        largest = max(nodes, key=lambda node: float(node["memory"]))
        return (
            f"needs {plan.cpus} CPUs, {plan.gpus} GPUs and {format_bytes(plan.memory_nbytes)}; the "
            f"largest node has {largest.get('CPU', 0):g}, {largest.get('GPU', 0):g} and "
            f"{format_bytes(int(largest['memory']))}"
        )

    def has_room(self, plan: RunPlan) -> bool:
        """Whether one more run may be started now; Ray queues those that do not fit."""
        return self._jobs is None or len(self._running) < self._jobs

    def start(self, plan: RunPlan, output: Path) -> None:
        """Queue an attempt; ``output`` is the file for its output."""
        task = self._attempt.options(
            num_cpus=plan.cpus,
            num_gpus=plan.gpus,
            memory=plan.memory_nbytes,
            max_retries=0,  # the runner retries, and counts the attempts
            name=plan.name,
        )
        self._running[task.remote(plan.arguments, str(output.absolute()), plan.cpus)] = plan

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most so many seconds for an attempt to end; return those that have ended."""
        running = list(self._running)
        first = self._ray.wait(running, timeout=seconds)[0] if running else []
        # All that have ended meanwhile, without waiting.
        done = first and self._ray.wait(running, num_returns=len(running), timeout=0)[0]
        return [self._end_of(reference) for reference in done or first]

    def _end_of(self, reference: Any) -> Ended:
        plan = self._running.pop(reference)
        try:
            return Ended(plan, int(self._ray.get(reference)))
        except self._ray.exceptions.RayError as error:
            return Ended(plan, None, f"lost by Ray: {reason_of(error)}")

    def stop(self) -> None:
        """Stop all runs, with checkpoints."""
        for reference in self._running:
            self._ray.cancel(reference, force=False)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running))

    def close(self) -> None:
        """Disconnect from Ray; on this machine, stop it."""
        self._running.clear()
        self._ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise :class:`RayError` where nothing answers; Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host:  # "auto": Ray finds it, or says so at once
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RayError(f"nothing answers there within {CONNECT_SECONDS} s: {reason}") from error


Executor = LocalExecutor | RayExecutor


def has_ray() -> bool:
    """Whether Ray is installed."""
    return find_spec("ray") is not None


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
        help="how often to retry a failed run from its checkpoint (default: 2)",
    )


def make_executor(
    plans: Sequence[RunPlan], *, jobs: int | None, address: str | None, use_ray: bool
) -> Executor:
    """Build the executor.

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
            print(f"warning: run {plan.name} {misfit}; it waits until one fits", file=sys.stderr)
    return executor
