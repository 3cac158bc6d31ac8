"""The cost of compact replay in training: the same training with either buffer, in turns."""

from functools import partial
from statistics import median
from typing import Any

from benchmarks.memory.play import REPLAY
from benchmarks.report import Part, Result, Section, Table, Target, note
from benchmarks.speed.contestants import Entry, take_turns
from benchmarks.speed.races import BREAKOUT, MEDQN_C20, Team

TRAININGS = {
    "Atari Qbert, MeDQN(R)": ("atari", MEDQN_C20),
    "MinAtar Breakout, MeDQN(R)": ("minatar", (*BREAKOUT, "--algo", "medqn-r")),
}


def measure_training(sizes: Any) -> Result:
    """Train with either buffer, in turns."""
    speeds: dict[str, dict[str, list[float]]] = {}
    for (label, (family, flags)), (warmup, steps) in zip(
        TRAININGS.items(), sizes.training_steps, strict=True
    ):
        entries = {replay: Entry("ours", family, (*flags, "--replay", replay)) for replay in REPLAY}
        with Team(entries, warmup) as team:
            actions = {name: partial(who.advance, steps) for name, who in team.members.items()}
            seconds = take_turns(actions, turns=sizes.training_turns, dropped=2)
        speeds[label] = {name: [steps / one for one in times] for name, times in seconds.items()}
        for replay, values in speeds[label].items():
            note(f"training: {label}, {replay}: {median(values):.1f} steps/s")
    steps_by_label = dict(zip(TRAININGS, sizes.training_steps, strict=True))
    return {"steps": steps_by_label, "steps_per_s": speeds}


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
        rows.append((label, f"{result['steps'][label][1]:,}", *ranges, f"{ratio:.3f}"))
        what = f"training time per step against raw, {label}"
        targets.append(Target(what=what, value=ratio, at_most=1.05, unit="x"))
    turns = len(next(iter(speeds.values())))
    warmups = " and ".join(f"{warmup:,}" for warmup, _ in result["steps"].values())
    columns = (f"{replay}: median (range)" for replay in REPLAY)
    return Section(
        title="Training speed",
        tables=[Table(("steps/s", "env steps", *columns, "time, compact by raw"), rows)],
        notes=(
            "Training as the scripts run it, on the CPU, in one process: "
            f"{turns} turns each, of the number of environment steps in the table. At the start, "
            f"the buffers contain {warmups} transitions."
        ),
        targets=targets,
    )


TRAINING = Part(measure_training, show_training)
