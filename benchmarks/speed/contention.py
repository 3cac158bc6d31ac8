"""What is left of a training's speed on a busy machine."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Part, Result, Section, Table, note
from benchmarks.speed.ratios import known_ratios
from medqn_tianshou.startup import ENVIRONMENT

NEIGHBOURS = 2
THREADS = 2


def measure(sizes: Any) -> Result:
    """Run the Atari main job, ours and stock, alone and beside busy processes, in turns."""
    env_steps, turns = sizes.contention
    speeds: dict[str, list[float]] = {}
    for turn in range(turns):
        for kind in ("ours", "stock"):
            for neighbours in (0, NEIGHBOURS):
                name = f"{kind}_{'busy' if neighbours else 'alone'}"
                note(f"  {name}, turn {turn + 1} of {turns}")
                with busy(neighbours):
                    speeds.setdefault(name, []).append(_run(kind, env_steps))
    return {
        "figures": {
            f"contention_{name}_steps_per_s": median(values) for name, values in speeds.items()
        },
        "steps_per_s": speeds,
        "env_steps": env_steps,
    }


def show(result: Result) -> Section:
    """Show the speeds alone and beside busy processes."""
    figures = result["figures"]
    rows = []
    for kind in ("ours", "stock"):
        alone, crowded = (
            figures[f"contention_{kind}_{name}_steps_per_s"] for name in ("alone", "busy")
        )
        rows.append((kind, f"{alone:,.0f}", f"{crowded:,.0f}", f"{crowded / alone:.2f}"))
    return Section(
        title="A busy machine",
        tables=[Table(("", "env steps/s, alone", "with busy neighbours", "share kept"), rows)],
        notes=(
            f"Qbert, MeDQN(R), C 20, buffer 100,000, {THREADS} threads, {result['env_steps']:,} "
            f"environment steps, next to {NEIGHBOURS} processes that compute continuously. Each "
            "training is a separate process; `stock` is MeDQN on Tianshou's own classes."
        ),
        targets=[ratio.target(figures) for ratio in known_ratios(figures)],
    )


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep processes computing as long as the context lasts."""
    processes = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _spin() -> None:
    while True:
        pass


def _run(kind: str, env_steps: int) -> float:
    """Train in a new process; return its speed."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "benchmarks.speed.contention", kind, str(env_steps), folder]
        environ = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
        if kind == "ours":
            environ |= ENVIRONMENT
        done = subprocess.run(line, env=environ, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603
    return float(done.stdout.split()[-1])


def main(kind: Any, env_steps: int, folder: Path) -> None:
    """Train, and print the speed."""
    from benchmarks.speed.contestants import Entry
    from benchmarks.speed.races import ENVPOOL, MEDQN_C20

    flags = MEDQN_C20 if kind == "ours" else (*MEDQN_C20, *ENVPOOL)
    contestant = Entry(kind, "atari", flags).build(folder, ["--warmup-steps", "500"])
    contestant.advance(200)
    start = time.perf_counter()
    contestant.advance(env_steps)
    print(env_steps / (time.perf_counter() - start))
    contestant.close()


CONTENTION = Part(measure, show)

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
