"""Runs many runs: each a process of its own, resumed from its checkpoint when it fails."""

import json
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from medqn_tianshou.commands.sweep import attempts
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.files.atomic import write_text_atomically
from medqn_tianshou.training.memory import memory_limit

State = Literal["waiting", "running", "finished", "failed", "stopped"]
WRONG_COMMAND_LINE = 2
LOOK_SECONDS = 0.5


@dataclass(kw_only=True)
class RunStatus:
    """How far a run is."""

    plan: RunPlan = field(repr=False)
    state: State = "waiting"
    attempts: int = 0
    """How often the run was started, over all starts of the sweep."""
    folder: Path | None = None
    reason: str = ""
    """Why the last attempt failed."""
    output: Path | None = None
    """The output of the last attempt; the attempt has started once this file exists."""
    was_finished: bool = False
    """Whether the run had finished before the sweep started."""


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: with an exit code, or in another way."""

    plan: RunPlan
    exit_code: int | None
    problem: str = ""


class Executor(Protocol):
    """Runs processes."""

    def has_room(self, plan: RunPlan) -> bool:
        """Whether one more run may be started now."""

    def start(self, plan: RunPlan, output: Path) -> None:
        """Start an attempt, or queue it; ``output`` is the file for its output."""

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most so many seconds for an attempt to end; return those that have ended."""

    def stop(self) -> None:
        """Stop all runs, with checkpoints."""

    def close(self) -> None:
        """Kill all that is left."""


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
        """Start an attempt."""
        process = attempts.start(plan.arguments, str(output), plan.cpus)
        self._processes[plan.name] = plan, process

    def wait(self, seconds: float) -> list[Ended]:
        """Wait for an attempt to end; return those that have ended."""
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
        """Kill all that is left."""
        for _, process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()


class Runner:
    """Starts runs where there is room, and writes their states to ``status.json``.

    :param plans: the runs, in the order in which to start them.
    :param folder: the folder of ``status.json`` and ``output/``.
    :param retries: how often to retry a failed run.
    :param on_change: called with all states when one has changed, and every half second.
    """

    def __init__(
        self,
        plans: Sequence[RunPlan],
        *,
        folder: Path,
        retries: int,
        on_change: Callable[[Sequence[RunStatus]], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._retries = retries
        self._on_change = on_change
        before = self._read_attempts()
        self.runs = {
            plan.name: RunStatus(plan=plan, attempts=before.get(plan.name, 0)) for plan in plans
        }
        for run in self.runs.values():
            run.folder = run.plan.finished_folder()
            if run.folder is not None:
                run.state, run.was_finished = "finished", True
            else:
                run.folder = run.plan.folder()

    @property
    def is_finished(self) -> bool:
        """Whether all runs have finished."""
        return all(run.state == "finished" for run in self.runs.values())

    def run(
        self, executor: Executor, on_finished: Callable[[RunStatus], None] = lambda _: None
    ) -> None:
        """Run all that is left. On KeyboardInterrupt the runs stop, with checkpoints.

        :param executor: runs the processes; it is closed at the end.
        :param on_finished: called with each run when it has finished.
        """
        (self._folder / "output").mkdir(parents=True, exist_ok=True)
        waiting = deque(run for run in self.runs.values() if run.state != "finished")
        tries_left = {run.plan.name: self._retries for run in waiting}
        started: set[str] = set()
        try:
            self._publish()
            while waiting or started:
                while waiting and executor.has_room(waiting[0].plan):
                    run = waiting.popleft()
                    run.attempts += 1
                    run.output = self._folder / f"output/{run.plan.name}-{run.attempts}.txt"
                    started.add(run.plan.name)
                    executor.start(run.plan, run.output)
                for ended in executor.wait(LOOK_SECONDS):
                    run = self.runs[ended.plan.name]
                    started.remove(run.plan.name)
                    self._settle(run, ended)
                    if run.state == "finished":
                        on_finished(run)
                    elif tries_left[run.plan.name] and ended.exit_code != WRONG_COMMAND_LINE:
                        tries_left[run.plan.name] -= 1
                        run.state = "waiting"
                        waiting.append(run)
                for name in started:
                    self._look_at(self.runs[name])
                self._publish()
        except KeyboardInterrupt:
            executor.stop()
            for run in self.runs.values():
                if run.state in ("waiting", "running") and self._has_stopped_at_its_end(run):
                    on_finished(run)
            raise
        finally:
            executor.close()
            self._publish()

    def _look_at(self, run: RunStatus) -> None:
        """Note whether a queued run has started."""
        if run.output is not None and run.output.exists():
            run.state = "running"
            run.folder = run.folder or run.plan.folder()

    def _settle(self, run: RunStatus, ended: Ended) -> None:
        run.folder = run.plan.finished_folder()
        if run.folder is not None:  # also if the worker was lost just after the run's end
            run.state, run.reason = "finished", ""
            return
        run.folder = run.plan.folder()
        run.state = "failed"
        run.reason = ended.problem or _reason(ended.exit_code or 0, run.output)

    def _has_stopped_at_its_end(self, run: RunStatus) -> bool:
        """Note the state of a run that was stopped, and may have finished just before."""
        run.folder = run.plan.finished_folder()
        if run.folder is not None:
            run.state = "finished"
            return True
        run.folder = run.plan.folder()
        run.state = "stopped" if run.folder else "waiting"
        return False

    def _publish(self) -> None:
        self._write_status()
        self._on_change(list(self.runs.values()))

    def _write_status(self) -> None:
        content = {
            name: {
                "state": run.state,
                "attempts": run.attempts,
                "reason": run.reason,
                "folder": self._relative(run.folder),
                "output": self._relative(run.output),
                "command": run.plan.typed,
            }
            for name, run in self.runs.items()
        }
        text = json.dumps({"runs": content}, indent=2) + "\n"
        path = self._folder / "status.json"
        if not path.exists() or path.read_text() != text:
            write_text_atomically(path, text)

    def _relative(self, path: Path | None) -> str | None:
        return None if path is None else str(path.absolute().relative_to(self._folder.absolute()))

    def _read_attempts(self) -> dict[str, int]:
        try:
            runs = json.loads((self._folder / "status.json").read_text())["runs"]
            return {name: int(run["attempts"]) for name, run in runs.items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}


def _reason(exit_code: int, output: Path | None) -> str:
    """Describe why a process failed: the signal that ended it, or its last line of output."""
    if exit_code < 0:
        number = signal.Signals(-exit_code)
        more = ", as when memory runs out" if number == signal.SIGKILL else ""
        return f"killed by {number.name}{more}"
    try:
        lines = output.read_text(errors="replace").split("\n") if output else []
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1].partition("error: ")[2] or said[-1] if said else f"exit code {exit_code}"
