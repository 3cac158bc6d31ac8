"""Where the time of our own training goes."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.report import Part, Result, Section, Table
from benchmarks.speed.races import ATARI_ENTRIES, MINATAR_ENTRIES, Team
from medqn_tianshou.fast.acting import Actor
from medqn_tianshou.fast.batches import StoredBatches
from medqn_tianshou.fast.targets import SingleFetch

PIECES = {
    "env": "step and reset the environment",
    "act": "choose actions",
    "bounds": "widen the bounds of MeDQN(U)",
    "store": "add to the buffer",
    "sample": "sample and read transitions and states",
    "learn": "forward, backward, optimizer",
    "log": "schedules and logs",
    "rest": "trainer, collector, everything else",
}
TRAININGS = {
    "atari_medqn_r_c20": (ATARI_ENTRIES["medqn_r_c20"], "atari_1env"),
    "minatar_medqn_u_c32": (MINATAR_ENTRIES["medqn_u_c32"], "minatar"),
}


class Stopwatch:
    """Adds up the time of functions, without that of the timed functions they call."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def wrap(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function that is timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = time.perf_counter() - start
                self.seconds[label] += elapsed - self._inner.pop()
                if self._inner:
                    self._inner[-1] += elapsed

        return timed


@contextmanager
def watched(training: Any) -> Iterator[Stopwatch]:
    """Time the pieces of a training as long as the context lasts."""
    collector, policy, logger = training.train_collector, training.policy, training.logger
    methods = [
        (collector.env, "play_alone" if hasattr(collector.env, "play_alone") else "step", "env"),
        (collector.env, "reset", "env"),
        (Actor, "__call__", "act"),
        (collector, "_store", "store"),
        (collector.buffer, "append" if hasattr(collector.buffer, "append") else "add", "store"),
        (SingleFetch, "fetch", "sample"),
        (StoredBatches, "draw", "sample"),
        (policy, "update", "learn"),
        (training.trainer, "train_fn", "log"),
        (logger, "log_train_data", "log"),
        (logger, "log_update_data", "log"),
    ]
    if collector._on_states is not None:
        methods.append((collector, "_on_states", "bounds"))
    stopwatch = Stopwatch()
    with ExitStack() as stack:
        for owner, name, label in methods:
            timed = stopwatch.wrap(label, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, timed))
        yield stopwatch


def measure_breakdown(sizes: Any) -> Result:
    """Time the pieces of our trainings."""
    pieces: dict[str, dict[str, float]] = {}
    for name, (entry, race) in TRAININGS.items():
        warmup, steps = sizes.races[race]
        with Team({name: entry}, warmup) as team:
            contestant = team.members[name]
            contestant.advance(steps * entry.chunk)
            env_steps = steps * entry.chunk * sizes.breakdown_chunks
            with watched(contestant.training) as stopwatch:
                start = time.perf_counter()
                contestant.advance(env_steps)
                whole = time.perf_counter() - start
        seconds = {**stopwatch.seconds, "rest": whole - sum(stopwatch.seconds.values())}
        pieces[name] = {piece: 1e6 * taken / env_steps for piece, taken in seconds.items()}
    return {
        "figures": {
            f"breakdown_{name}_{piece}_us": microseconds
            for name, values in pieces.items()
            for piece, microseconds in values.items()
        },
        "us_per_env_step": pieces,
    }


def show_breakdown(result: Result) -> Section:
    """Show where the time goes."""
    tables = []
    for name, values in result["us_per_env_step"].items():
        whole = sum(values.values())
        rows = [
            (piece, what, f"{values[piece]:,.1f}", f"{100 * values[piece] / whole:.1f} %")
            for piece, what in PIECES.items()
            if piece in values
        ]
        rows.append(("all", "", f"{whole:,.1f}", "100 %"))
        tables.append(Table((name, "", "us per env step", "share"), rows))
    return Section(
        title="Where our time goes",
        tables=tables,
        notes=(
            "Measured in a separate run with timers around these methods; each excludes the time "
            "of the other timed methods that it calls."
        ),
    )


BREAKDOWN = Part(measure_breakdown, show_breakdown)
