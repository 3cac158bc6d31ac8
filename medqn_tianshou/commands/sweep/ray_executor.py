"""Runs on Ray: on this machine, or on a cluster whose nodes share the folder of the runs."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from medqn_tianshou.commands.sweep import attempts
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.commands.sweep.runner import Ended
from medqn_tianshou.training.memory import format_bytes, memory_limit

OBJECT_STORE_NBYTES = 80_000_000
"""About the least that Ray accepts: runs return an exit code and nothing else."""


class RayError(Exception):
    """Ray cannot be used; the text is for the user."""


def has_ray() -> bool:
    """Whether Ray is installed."""
    return find_spec("ray") is not None


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
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RayError(str(error).splitlines()[0]) from error
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
        """Queue an attempt."""
        task = self._attempt.options(
            num_cpus=plan.cpus,
            num_gpus=plan.gpus,
            memory=plan.memory_nbytes,
            max_retries=0,  # the runner retries, and counts the attempts
            name=plan.name,
        )
        self._running[task.remote(plan.arguments, str(output.absolute()), plan.cpus)] = plan

    def wait(self, seconds: float) -> list[Ended]:
        """Wait for an attempt to end; return those that have ended."""
        if not self._running:
            return []
        first, _ = self._ray.wait(list(self._running), timeout=seconds)
        # All that have ended meanwhile, without waiting.
        done = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)[0]
        return [self._end_of(reference) for reference in done or first]

    def _end_of(self, reference: Any) -> Ended:
        plan = self._running.pop(reference)
        try:
            return Ended(plan, int(self._ray.get(reference)))
        except self._ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return Ended(plan, None, f"lost by Ray: {(lines or [type(error).__name__])[0]}")

    def stop(self) -> None:
        """Let all runs write their checkpoints and end."""
        for reference in self._running:
            self._ray.cancel(reference, force=False)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running))

    def close(self) -> None:
        """Disconnect from Ray; on this machine, stop it."""
        self._running.clear()
        self._ray.shutdown()
