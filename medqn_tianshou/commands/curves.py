"""Learning curves as the paper draws them: returns of the last episodes, smoothed, two errors."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRID_POINTS = 400
SMOOTHING = 0.9
"""Weight of the past in the exponential average; the paper smooths but does not say how much."""


@dataclass(frozen=True)
class Curve:
    """Mean return of the last episodes, at the environment step where each episode ended."""

    env_step: NDArray[np.float64]
    value: NDArray[np.float64]
    env_steps: int
    """The length of the run."""


def read_curve(path: Path, window: int, env_steps: int) -> Curve:
    """Read the episodes of a run.

    :param path: its ``episodes.csv``.
    :param window: how many episodes to average over.
    :param env_steps: the length of the run.
    """
    with path.open() as file:
        rows = list(csv.DictReader(file))
    returns = np.array([float(row["return"]) for row in rows])
    sums = np.concatenate(([0.0], np.cumsum(returns)))
    ends = np.arange(1, len(returns) + 1)
    starts = np.maximum(ends - window, 0)
    steps = np.array([float(row["env_step"]) for row in rows])
    return Curve(steps, (sums[ends] - sums[starts]) / (ends - starts), env_steps)


def final_returns(curves: list[Curve]) -> NDArray[np.float64]:
    """The last value of each run that finished an episode."""
    return np.array([curve.value[-1] for curve in curves if len(curve.value)])


def mean_and_error(values: NDArray[np.float64]) -> tuple[Any, Any]:
    """Mean and standard error over the first axis."""
    count = len(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(values[0])
    return values.mean(axis=0), error


def on_grid(curve: Curve, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The curve's value at given steps, smoothed; the first value holds before the first episode.

    :param curve: the curve.
    :param grid: environment steps.
    """
    last = np.searchsorted(curve.env_step, grid, side="right") - 1
    values: NDArray[np.float64] = curve.value[np.maximum(last, 0)]
    smooth = np.empty_like(values)
    average = values[0]
    for index, value in enumerate(values):
        average = SMOOTHING * average + (1 - SMOOTHING) * value
        smooth[index] = average
    return smooth


def draw_curves(path: Path, title: str, curves: dict[str, list[Curve]]) -> None:
    """Draw mean and two standard errors of each group of runs.

    :param path: the PNG to write.
    :param title: the title.
    :param curves: the runs of each line.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4))
    for label, runs in curves.items():
        runs = [run for run in runs if len(run.value)]
        if not runs:
            continue
        grid = np.linspace(0, max(run.env_steps for run in runs), GRID_POINTS)
        mean, error = mean_and_error(np.stack([on_grid(run, grid) for run in runs]))
        (line,) = axis.plot(grid, mean, linewidth=1.8, label=f"{label} ({_count(runs)})")
        axis.fill_between(
            grid, mean - 2 * error, mean + 2 * error, color=line.get_color(), alpha=0.2, linewidth=0
        )
    axis.set(title=title, xlabel="environment steps", ylabel="return")
    axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 0), useMathText=True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _count(runs: list[Curve]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def write_table(
    path: Path,
    *,
    title: str,
    note: str,
    command: str,
    record: dict[str, Any],
    finals: dict[str, NDArray[np.float64]],
    picture: str,
) -> None:
    """Write a result page: the table, the picture, and how they were obtained.

    :param path: the Markdown file.
    :param title: its heading.
    :param note: where ours differs from the paper's.
    :param command: what was run.
    :param record: settings of one of the runs, for versions and machine.
    :param finals: the final return of each run of each line.
    :param picture: the file name of the picture.
    """
    versions, hardware = record["versions"], record["hardware"]
    window = record["settings"]["return_window"]["value"]
    lines = [
        f"# {title}",
        "",
        f"| | final return (last {window} episodes): mean ± standard error | median | runs |",
        "|---|---|---|---|",
    ]
    for label, values in finals.items():
        mean, error = mean_and_error(values)
        spread = f" ± {error:.1f}" if len(values) > 1 else ""
        lines.append(f"| {label} | {mean:.1f}{spread} | {np.median(values):.1f} | {len(values)} |")
    lines += [
        "",
        f"![{title}]({picture})",
        "",
        "Lines are means over runs of the return averaged over the last "
        f"{window} episodes, smoothed exponentially; shaded are two standard errors.",
        *(["", note] if note else []),
        "",
        f"Command: `{command}`, seeds counted from 0. Episodes, settings and summary of each run "
        "are in `raw/`.",
        "",
        f"Versions: Python {versions['python']}, "
        + ", ".join(
            f"{name} {versions[name]}" for name in ("tianshou", "torch", "gymnasium", "numpy")
        )
        + f". Machine: {hardware['cpu']}, {hardware['cpu_cores']} cores, one thread per run.",
        "",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
