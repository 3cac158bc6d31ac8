"""Executes many runs, each a separate process, resumed from its checkpoint if it fails."""

import json
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from medqn_tianshou.commands.sweep.executors import Ended, Executor
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.files.atomic import write_text_atomically
from medqn_tianshou.files.schema import fields, mapping, whole

State = Literal["waiting", "running", "finished", "failed", "stopped"]
WRONG_COMMAND_LINE = 2
LOOK_SECONDS = 0.5
_STATUS = fields({"runs": mapping(fields({"attempts": whole(0, 10**9)}, others=None))}, others=None)


@dataclass(kw_only=True)
class RunStatus:
    """The state of a run."""

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

    def look(self) -> bool:
        """Find the run's folder; return whether the run has finished, and note it."""
        finished = self.plan.finished_folder()
        self.folder = finished or self.plan.folder()
        if finished is not None:
            self.state, self.reason = "finished", ""
        return finished is not None


class Runner:
    """Starts runs where there is room, and writes their states to ``status.json``.

    :param plans: the runs, in the order in which to start them.
    :param folder: the folder of ``status.json`` and ``output/``.
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
        self._published = ""
        known = self._read_status()
        before = {name: entry["attempts"] for name, entry in known.items()}
        # Of studies of the same file that do not run now.
        self._others = {name: known[name] for name in known.keys() - {p.name for p in plans}}
        self.runs = {
            plan.name: RunStatus(plan=plan, attempts=before.get(plan.name, 0)) for plan in plans
        }
        for run in self.runs.values():
            run.was_finished = run.look()

    def in_state(self, state: State) -> list[RunStatus]:
        """Return the runs that are in a state."""
        return [run for run in self.runs.values() if run.state == state]

    def run(
        self, executor: Executor, on_finished: Callable[[RunStatus], None] = lambda _: None
    ) -> None:
        """Run all that is left, then close the executor.

        On KeyboardInterrupt, and on errors, the runs stop, with checkpoints.
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
                    if run.look():  # also if the worker was lost just after the run's end
                        on_finished(run)
                        continue
                    run.state, run.reason = "failed", _reason(ended, run.output)
                    if tries_left[run.plan.name] and ended.exit_code != WRONG_COMMAND_LINE:
                        tries_left[run.plan.name] -= 1
                        run.state = "waiting"
                        waiting.append(run)
                for run in map(self.runs.__getitem__, started):
                    if run.output is not None and run.output.exists():  # no longer queued
                        run.state = "running"
                        run.folder = run.folder or run.plan.folder()
                self._publish()
        except KeyboardInterrupt:
            executor.stop()
            for run in self.in_state("waiting") + self.in_state("running"):
                if run.look():  # just before it was stopped
                    on_finished(run)
                else:
                    run.state = "stopped" if run.folder else "waiting"
            raise
        except Exception:
            executor.stop()  # with checkpoints: closing it kills the runs
            raise
        finally:
            executor.close()
            self._publish()

    def _publish(self) -> None:
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
        text = json.dumps({"runs": {**self._others, **content}}, indent=2) + "\n"
        path = self._folder / "status.json"
        if text != self._published or not path.exists():
            write_text_atomically(path, text)
            self._published = text
        self._on_change(list(self.runs.values()))

    def _relative(self, path: Path | None) -> str | None:
        return None if path is None else str(path.absolute().relative_to(self._folder.absolute()))

    def _read_status(self) -> dict[str, dict[str, Any]]:
        try:
            content = json.loads((self._folder / "status.json").read_text())
            _STATUS(content)
        except (OSError, ValueError, RecursionError):
            return {}
        runs: dict[str, dict[str, Any]] = content["runs"]
        return runs


def _reason(ended: Ended, output: Path | None) -> str:
    """Describe why a run failed: what the executor or a signal did, or its last line of output."""
    exit_code = ended.exit_code or 0
    if ended.problem:
        return ended.problem
    if exit_code < 0:
        number = signal.Signals(-exit_code)
        more = ", perhaps as memory ran out" if number == signal.SIGKILL else ""
        return f"killed by {number.name}{more}"
    try:
        text = output.read_text(errors="replace") if output else ""
    except OSError:
        text = ""
    last = text.strip().rpartition("\n")[2].strip()
    return last.partition("error: ")[2] or last or f"exit code {exit_code}"
