"""What compact replay costs in training: the scripts' speed with either buffer."""

import csv
import sys
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from play import REPLAY
from processes import run_process
from report import Part, Result, Section, Table, Target, note

ROOT = Path(__file__).parent.parent

SCRIPTS = {
    "Atari Qbert, MeDQN(R)": (
        "atari/atari_medqn.py", "--task", "QbertNoFrameskip-v4", "--algo", "medqn",
        "--test-num", "1", "--epoch", "2", "--step-per-epoch", "{half}",
    ),
    "MinAtar Breakout, MeDQN(R)": (
        "minatar/minatar_medqn.py", "--game", "breakout", "--algo", "medqn-r",
        "--steps", "{whole}",
    ),
}  # fmt: skip


def measure_training(sizes: Any) -> Result:
    """Run the training scripts with either buffer, in turns."""
    speeds: dict[str, dict[str, list[float]]] = {}
    for (label, flags), steps in zip(SCRIPTS.items(), sizes.training_steps, strict=True):
        speeds[label] = {replay: [] for replay in REPLAY}
        for repeat in range(sizes.training_repeats):
            for replay in sorted(REPLAY, reverse=repeat % 2 == 0):
                filled = [flag.format(half=steps // 2, whole=steps) for flag in flags]
                speed = _run_script([*filled, "--replay", replay, "--seed", str(repeat)])
                speeds[label][replay].append(speed)
                note(f"training: {label}, {replay}: {speed:.1f} steps/s")
    steps_by_label = dict(zip(SCRIPTS, sizes.training_steps, strict=True))
    return {"steps": steps_by_label, "steps_per_s": speeds}


def _run_script(flags: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        script, *others = flags
        files = ["--device", "cpu", "--logdir", folder, "--no-progress"]
        run_process([sys.executable, str(ROOT / script), *others, *files])
        (progress,) = Path(folder).glob("**/progress.csv")
        with progress.open() as file:
            return speed_of_second_half(csv.DictReader(file))


def speed_of_second_half(rows: Iterable[dict[str, str]]) -> float:
    """Environment steps per second after the first half of a run, evaluations excluded.

    :param rows: the lines of its ``progress.csv``.
    """
    points = [(0, 0.0)] + [
        (int(row["env_step"]), float(row["steps_per_s"])) for row in rows if row["steps_per_s"]
    ]
    steps = seconds = 0.0
    for (start, _), (stop, speed) in pairwise(points):
        if 2 * start >= points[-1][0]:
            steps += stop - start
            seconds += (stop - start) / speed
    return steps / seconds


def show_training(result: Result) -> Section:
    """Show training speed."""
    rows, targets = [], []
    for label, speeds in result["steps_per_s"].items():
        medians = {replay: median(values) for replay, values in speeds.items()}
        ratio = medians["raw"] / medians["compact"]
        ranges = [
            f"{medians[replay]:.1f} ({min(values):.1f} to {max(values):.1f})"
            for replay, values in speeds.items()
        ]
        rows.append((label, f"{result['steps'][label]:,}", *ranges, f"{ratio:.3f}"))
        what = f"training time per step against raw, {label}"
        targets.append(Target(what=what, value=ratio, at_most=1.05, unit="x"))
    repeats = len(next(iter(speeds.values())))
    columns = (f"{replay}: median (range)" for replay in REPLAY)
    return Section(
        title="Training speed",
        tables=[Table(("steps/s", "env steps", *columns, "time, compact by raw"), rows)],
        notes=(
            f"Runs of the training script on the CPU, {repeats} with each buffer, in turns; speed "
            "in the second half of a run, evaluation excluded, as its `progress.csv` has it."
        ),
        targets=targets,
    )


TRAINING = Part(measure_training, show_training)
