"""The memory of a fresh process, with a full buffer alone and in training as in the paper."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Part, Result, Section, Table, Target, gigabytes, megabytes, note

ROOT = Path(__file__).parents[2]
WORKER = "benchmarks.memory.worker"


def run_process(command: Sequence[str]) -> str:
    """Run a command in the root of the repository and return its output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{' '.join(command[1:])} failed: {reason}")
    return done.stdout


def run_worker(job: str, **parameters: Any) -> Result:
    """Run a job of ``worker.py`` in a process of its own."""
    text = json.dumps({"job": job, **parameters})
    lines = run_process([sys.executable, "-m", WORKER, text]).splitlines()
    result: Result = json.loads(lines[-1])
    return result


def measure_full(sizes: Any) -> Result:
    """Fill a compact buffer with as many transitions as the paper's DQN has."""
    result = run_worker(
        "fill_replay", transitions=sizes.full_transitions, num_envs=sizes.full_num_envs
    )
    note(f"full: {gigabytes(result['nbytes'])}, RSS grew by {gigabytes(result['rss_growth'])}")
    return result


def show_full(result: Result) -> Section:
    """Show what a full buffer takes."""
    size = result["transitions"]
    return Section(
        title="Atari: a full buffer",
        tables=[
            Table(
                (f"Qbert, {size:,} transitions", ""),
                [
                    ("bytes stored (`nbytes`)", gigabytes(result["nbytes"])),
                    ("growth of the process (RSS)", gigabytes(result["rss_growth"])),
                    ("bytes per transition", f"{result['nbytes'] / size:.1f}"),
                    ("time to play and add", f"{result['seconds']:.0f} s"),
                ],
            )
        ],
        notes=(
            f"Random play of {result['num_envs']} environments, which share the buffer evenly, in "
            "a separate process. The growth of RSS is relative to a process that has filled and "
            "deleted a small buffer, and has therefore loaded and compiled all code."
        ),
        targets=[
            Target(
                what=f"a full {size:,}-transition Qbert buffer, {what}",
                value=result[key] / 1e9,
                at_most=0.18,
                unit="GB",
            )
            for what, key in (("bytes stored", "nbytes"), ("growth of RSS", "rss_growth"))
        ],
    )


@dataclass(frozen=True)
class Training:
    """A row of the memory tables: one algorithm, one kind of buffer."""

    label: str
    family: str
    task: str
    algo: str
    buffer_size: int
    replay: str
    paper: str
    """The paper's figure for this algorithm and size, which it has with its own raw buffer."""


def _atari(label: str, algo: str, buffer_size: int, replay: str, paper: str) -> Training:
    return Training(label, "atari", "QbertNoFrameskip-v4", algo, buffer_size, replay, paper)


def _lowdim(label: str, algo: str, buffer_size: int, replay: str, paper: str) -> Training:
    return Training(label, "lowdim", "MountainCar-v0", algo, buffer_size, replay, paper)


def _minatar(label: str, algo: str, buffer_size: int, replay: str, paper: str) -> Training:
    return Training(label, "minatar", "seaquest", algo, buffer_size, replay, paper)


TRAININGS = (
    _atari("DQN", "dqn", 1_000_000, "stock", "8.9 GB"),
    _atari("DQN", "dqn", 100_000, "raw", "2.9 GB"),
    _atari("MeDQN(R)", "medqn", 100_000, "raw", "3.1 GB"),
    _atari("MeDQN(R)", "medqn", 100_000, "compact", "3.1 GB"),
    _atari("DQN", "dqn", 1_000_000, "compact", "8.9 GB"),
    _minatar("DQN", "dqn", 100_000, "stock", "1,400 MB"),
    _minatar("DQN", "dqn", 100_000, "raw", "1,400 MB"),
    _minatar("DQN", "dqn", 100_000, "compact", "1,400 MB"),
    _minatar("DQN(S)", "dqn-s", 32, "raw", "240 MB"),
    _minatar("MeDQN(U)", "medqn-u", 32, "raw", "250 MB"),
    _minatar("MeDQN(R)", "medqn-r", 10_000, "raw", "280 MB"),
    _minatar("MeDQN(R)", "medqn-r", 10_000, "compact", "280 MB"),
    _lowdim("DQN", "dqn", 10_000, "raw", ""),
    _lowdim("MeDQN(U)", "medqn-u", 32, "raw", ""),
)
HEADINGS = {
    "atari": "Atari, Qbert",
    "minatar": "MinAtar, Seaquest",
    "lowdim": "low-dimensional, MountainCar",
}
# At most, and what we would like to reach, in MB: family, algorithm, kind of buffer.
TARGETS = {
    ("atari", "medqn", "compact"): (500, 420),
    ("atari", "dqn", "compact"): (620, 540),
    ("minatar", "medqn-u", "raw"): (400, 320),
    ("minatar", "medqn-r", "compact"): (400, 320),
    ("minatar", "dqn", "compact"): (400, 320),
    ("lowdim", "medqn-u", "raw"): (390, 310),
}


def measure_rss(sizes: Any) -> Result:
    """Measure each of the paper's memory tables' runs in a process of its own."""
    # Numba compiles once and caches on disk: not in the first process that is measured.
    run_worker("fill_replay", transitions=100, num_envs=1)

    def measure(training: Training) -> Result:
        buffer_size = max(training.buffer_size // sizes.rss_divisor, 32)
        measured = run_worker(
            "train",
            family=training.family,
            task=training.task,
            algo=training.algo,
            buffer_size=buffer_size,
            replay=training.replay,
            rounds=sizes.rss_rounds,
        )
        note(
            f"rss: {training.family}, {training.label}, {buffer_size:,} {training.replay}: "
            f"{megabytes(measured['peak_rss'])}"
        )
        return {**vars(training), "buffer_size": buffer_size, **measured}

    with ThreadPoolExecutor(4) as pool:  # a busy machine does not change the memory
        return {"rounds": sizes.rss_rounds, "trainings": [*pool.map(measure, TRAININGS)]}


def show_rss(result: Result) -> Section:
    """Show the memory tables."""
    tables, rows_of = [], result["trainings"]
    for family, heading in HEADINGS.items():
        header = (heading, "buffer", "peak RSS", "libraries", "network", "buffer", "rest", "paper")
        rows = [
            (
                row["label"],
                f"{row['buffer_size']:,} {row['replay']}",
                *(megabytes(nbytes) for nbytes in (row["peak_rss"], *shares(row).values())),
                with_separators(row["paper"]),
            )
            for row in rows_of
            if row["family"] == family
        ]
        tables.append(Table(header, rows))
    builds = ", ".join(sorted({row["torch"] for row in rows_of}))
    return Section(
        title="Training: memory of the process, as in the paper's Tables 12 and 13",
        tables=tables,
        notes=(
            "![Stacked bars: the memory of training processes](processes.png)\n\n"
            f"All numbers are for torch {builds} with all extras installed; a CUDA build needs "
            "about 300 MB more. Each row is a separate process that builds what the training "
            f"script builds, fills the buffer with random play, trains for {result['rounds']} "
            "updates on one CPU thread, and plays one evaluation game. Atari buffers of more than "
            "20,000 transitions were filled with copies of 1,000 recorded steps, each shifted by a "
            "pixel; *a full buffer* above measures a million transitions of real play.\n\n"
            "Libraries: RSS after all imports of the script. Network: parameters, target network, "
            "gradients and two moments of the optimizer. Rest: games, activations, compiled code "
            "and memory that the allocator keeps. `stock` is Tianshou's own DQN, collector and "
            "buffer, without evaluation. The paper measured its own programs on its own machines."
            "\n\nThe compiled code was in numba's cache; the first run after an installation "
            "compiles it and needs up to 170 MB more until it ends. Our training processes release "
            "the pages of library code that only loading needed (`startup.release_code`). RSS "
            "counts such pages although the system may reclaim them at any time; without this "
            "step, our numbers are higher."
        ),
        targets=[
            Target(
                what=f"peak RSS, {HEADINGS[family]}, {row['label']}, {row['buffer_size']:,}",
                value=row["peak_rss"] / 1e6,
                at_most=at_most,
                aim=aim,
                unit="MB",
            )
            for (family, algo, replay), (at_most, aim) in TARGETS.items()
            for row in rows_of
            if (row["family"], row["algo"], row["replay"]) == (family, algo, replay)
        ],
    )


def with_separators(size: str) -> str:
    """Write the 1400 of "1400 MB" as 1,400."""
    return re.sub(r"\d{4,}", lambda found: f"{int(found[0]):,}", size)


def shares(row: Result) -> dict[str, int]:
    """Divide the peak of a process: libraries, network, buffer, rest."""
    known = {"libraries": row["imported"], "network": row["network"], "buffer": row["buffer"]}
    return {**known, "rest": max(row["peak_rss"] - sum(known.values()), 0)}


FULL = Part(measure_full, show_full)
RSS = Part(measure_rss, show_rss)
