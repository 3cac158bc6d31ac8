"""The progress of a sweep: a table on a terminal, otherwise a line for each change."""

import csv
import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import TextIO, get_args

from medqn_tianshou.commands.sweep.runner import RunStatus, State

REDRAW_SECONDS = 1.0
TAIL_NBYTES = 200
"""More bytes than a line of ``episodes.csv`` has."""
HEADINGS = ["run", "state", "env step", "return", "attempts", ""]
ORDER: tuple[State, ...] = ("running", "failed", "stopped", "waiting", "finished")


class SweepTable:
    """Shows the progress of the runs on a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._on_terminal = stream.isatty()
        self._lines_drawn = 0
        self._last_time = 0.0
        self._shown: dict[str, tuple[State, int, str]] = {}

    def show(self, runs: Sequence[RunStatus]) -> None:
        """Show what has changed; ``runs`` are all runs of the sweep."""
        states = {run.plan.name: (run.state, run.attempts, run.reason) for run in runs}
        news = [r for r in runs if self._shown.get(r.plan.name) != states[r.plan.name]]
        self._shown = states
        if self._on_terminal:
            if news or time.monotonic() - self._last_time >= REDRAW_SECONDS:
                self._draw(runs)
            return
        done = f"[{sum(run.state == 'finished' for run in runs)}/{len(runs)}]"
        for run in news:
            if run.state != "waiting" or run.reason:
                print(done, _line(run), file=self._stream, flush=True)

    def _draw(self, runs: Sequence[RunStatus]) -> None:
        width, height = shutil.get_terminal_size()
        rows = [_row(run) for run in sorted(runs, key=lambda run: ORDER.index(run.state))]
        shown = rows[: max(height - 4, 1)]
        if len(shown) < len(rows):
            shown.append([f"... {len(rows) - len(shown)} more"])
        count = Counter(run.state for run in runs)
        summary = ", ".join(f"{count[state]} {state}" for state in get_args(State) if count[state])
        lines = [summary, *align([HEADINGS, *shown])]
        up = f"\x1b[{self._lines_drawn}A" if self._lines_drawn else ""
        text = "".join(f"\x1b[2K{line[: width - 1]}\n" for line in lines)
        self._stream.write(f"{up}{text}\x1b[J")
        self._stream.flush()
        self._lines_drawn, self._last_time = len(lines), time.monotonic()


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of cells as lines with aligned columns; rows may differ in length."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]


def progress(run: RunStatus) -> tuple[int, float | None]:
    """Return the environment steps that a run has done, and its last return, if any."""
    if run.folder is None:
        return 0, None
    if run.state == "finished":
        with suppress(OSError):  # its folder may be moved while other runs go on
            summary = json.loads((run.folder / "summary.json").read_text())
            return summary["env_steps"], summary["final_return"]  # checked: it has finished
    return _last_episode(run.folder / "episodes.csv")


def _last_episode(path: Path) -> tuple[int, float | None]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - TAIL_NBYTES, 0))
            # The last line may be incomplete, and so may the first one read.
            whole = file.read().decode().split("\n")[:-1]
        env_step, episode_return, _ = list(csv.reader(whole))[-1]
        return int(env_step), float(episode_return)
    except (OSError, ValueError, IndexError):
        return 0, None


def _row(run: RunStatus) -> list[str]:
    steps, last_return = progress(run)
    return [
        run.plan.name,
        run.state,
        f"{steps:,} of {run.plan.env_steps:,}",
        "" if last_return is None else f"{last_return:.1f}",
        str(run.attempts),
        "before" if run.was_finished else run.reason,
    ]


def _line(run: RunStatus) -> str:
    _, last_return = progress(run)
    notes = [f"attempt {run.attempts}"] if run.attempts > 1 else []
    if run.state == "finished" and last_return is not None:
        notes.append(f"return {last_return:.1f}")
    notes += ["before"] * run.was_finished + [run.reason] * bool(run.reason)
    return f"{run.state:8} {run.plan.name}{': ' * bool(notes)}{', '.join(notes)}"
