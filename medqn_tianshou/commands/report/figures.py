"""The figures of a report, each as PNG and SVG, with the protocol of its returns below it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import EngFormatter, MultipleLocator, NullLocator
from matplotlib.transforms import offset_copy

from medqn_tianshou.commands.report.analysis import Analysis
from medqn_tianshou.commands.report.curves import Array
from medqn_tianshou.commands.report.published import published_marks
from medqn_tianshou.commands.report.runs import RecordedRun
from medqn_tianshou.commands.report.statistics import AGGREGATES, HUMAN, Estimate
from medqn_tianshou.commands.report.style import (
    MOST_LINES,
    look_of,
    panel_per_task,
    saved_figure,
)
from medqn_tianshou.training.memory import MB


@dataclass(frozen=True)
class Cost:
    """What a return is held against."""

    name: str
    title: str
    of_run: Callable[[RecordedRun], float | None]
    unit: str
    is_logarithmic: bool = False


COSTS = (
    Cost(
        "return_replay",
        "replay memory at the end of the run",
        lambda run: None if run.buffer_mb is None else run.buffer_mb * MB,
        "B",
        is_logarithmic=True,
    ),
    Cost(
        "return_rss",
        "peak memory of the process (RSS)",
        lambda run: None if run.peak_rss_mb is None else run.peak_rss_mb * MB,
        "B",
    ),
    Cost("return_time", "training time", lambda run: run.train_seconds, "s"),
)


def draw_figures(out: Path, analysis: Analysis) -> list[str]:
    """Draw all figures; return their names without ending."""
    names = ["learning_curves"]
    draw_curves(out / "learning_curves", analysis)
    if analysis.aggregates:
        _draw_aggregates(out / "aggregates", analysis)
        names.append("aggregates")
    if analysis.improvements:
        _draw_improvements(out / "improvement", analysis)
        names.append("improvement")
    runs = [run for group in analysis.groups.values() for run in group]
    for cost in COSTS:
        if any(cost.of_run(run) is not None for run in runs):
            _draw_cost(out / cost.name, analysis, cost)
            names.append(cost.name)
    return names


def draw_curves(path: Path, analysis: Analysis, **options: Any) -> None:
    """Draw the learning curves, and behind those of Atari what was published.

    :param path: the files without their ending.
    :param options: for :func:`panel_per_task`.
    """
    with panel_per_task(path, analysis, analysis.curve_text, **options) as panels:
        for task, axis in panels.items():
            for label, runs in analysis.of_task(task).items():
                line = analysis.line(task, label)
                colour, marker = look_of(analysis, label)
                if analysis.is_atari(task):
                    _draw_published(axis, max(runs, key=lambda run: run.env_steps), colour, marker)
                axis.plot(line.env_steps, line.value, color=colour, linewidth=1.7)
                if line.low is not None and line.high is not None:
                    look = {"color": colour, "alpha": 0.18, "linewidth": 0}
                    axis.fill_between(line.env_steps, line.low, line.high, **look)
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            axis.set_xlabel("environment steps")


def _draw_published(axis: Any, run: RecordedRun, colour: str, marker: str) -> None:
    step, median, lowest, highest = published_marks(run).T
    ends = [median - lowest, highest - median]
    look = {"markerfacecolor": "white", "markersize": 5, "linewidth": 0, "elinewidth": 1}
    axis.errorbar(step, median, ends, color=colour, marker=marker, alpha=0.5, zorder=1.5, **look)


def _draw_cost(path: Path, analysis: Analysis, cost: Cost) -> None:
    note = (
        "Filled: runs, drawn to the right of their place where all of them share one. Open: mean, "
    )
    note += "with the 95% bootstrap interval of the mean return."
    with panel_per_task(path, analysis, note) as panels:
        for task, axis in panels.items():
            places = []
            for label, runs in analysis.of_task(task).items():
                pairs = [
                    (place, value)
                    for run, value in zip(runs, analysis.finals[task, label], strict=True)
                    if (place := cost.of_run(run)) is not None
                ]
                if pairs:
                    xs, ys = np.array(pairs).T
                    _draw_runs(axis, xs, ys, *look_of(analysis, label))
                    mean = analysis.final_mean(task, label)
                    _draw_mean(axis, float(xs.mean()), mean, *look_of(analysis, label))
                    places += xs.tolist()
            _set_cost_axis(axis, cost, places)
            axis.margins(y=0.1)


def _draw_runs(axis: Any, xs: Array, ys: Array, colour: str, marker: str) -> None:
    shared = len(xs) > 1 and np.ptp(xs) == 0
    beside = offset_copy(axis.transData, axis.figure, 11 * shared, units="points")
    look = {"color": colour, "marker": marker, "alpha": 0.5, "linewidth": 0}
    axis.scatter(xs, ys, 12, transform=beside, **look)
    axis.update_datalim(np.column_stack([xs, ys]))  # a shifted point does not count by itself


def _draw_mean(axis: Any, place: float, mean: Estimate, colour: str, marker: str) -> None:
    if mean.low is not None and mean.high is not None:
        ends = [[mean.value - mean.low], [mean.high - mean.value]]
        axis.errorbar([place], [mean.value], ends, color=colour, linewidth=1.6, capsize=4)
    look = {"markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.8}
    axis.plot([place], [mean.value], marker, color=colour, zorder=3, **look)


def _set_cost_axis(axis: Any, cost: Cost, places: Sequence[float]) -> None:
    """Show bytes and seconds as people read them, with room at both sides."""
    axis.set_xlabel(cost.title)
    if not places:
        return
    low, high = min(places), max(places)
    if cost.unit == "s":
        units = (("h", 3600), ("min", 60), ("s", 1))
        unit, size = next((u, size) for u, size in units if high >= 2 * size or size == 1)
        axis.set_xlabel(f"{cost.title} ({unit})")
        axis.xaxis.set_major_locator(MultipleLocator(_step(high / size) * size))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / size:g}")
    else:
        axis.xaxis.set_major_formatter(EngFormatter("B"))
    if cost.is_logarithmic:
        axis.set(xscale="log", xlim=(low / 4, high * 6))
        axis.xaxis.set_major_formatter(EngFormatter("B"))
        axis.xaxis.set_minor_locator(NullLocator())
    else:
        axis.set_xlim(0, high * 1.15)


def _step(length: float) -> float:
    """A round step of which about four make a length."""
    power = 10.0 ** np.floor(np.log10(length / 4))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= length / 5))


def _draw_aggregates(path: Path, analysis: Analysis) -> None:
    scales = [
        (t, scale) for t in analysis.shared_tasks if (scale := analysis.scales[t]) is not None
    ]
    meanings = ["a random and a human player"] * any(scale.reason == HUMAN for _, scale in scales)
    meanings += [
        f"{scale.low:,g} and {scale.high:,g} in {task} ({scale.reason})"
        for task, scale in scales
        if scale.reason != HUMAN
    ]
    note = "Scores: 0 and 1 are " + "; ".join(meanings[:MOST_LINES])
    note += "; others in scales.csv" if len(meanings) > MOST_LINES else ""
    note += ". Bars: 95% stratified bootstrap intervals. Optimality gap: lower is better."
    size, grid = (10.5, 0.34 * len(analysis.labels) + 1.1), (1, len(AGGREGATES))
    with saved_figure(path, analysis, analysis.shared_tasks, note, size, grid, sharey=True) as axes:
        for axis, name in zip(axes, AGGREGATES, strict=True):
            for place, label in enumerate(analysis.labels):
                _draw_interval(axis, place, analysis.aggregates[label][name], analysis, label)
            axis.use_sticky_edges = False  # bars may begin at the edge
            axis.margins(x=0.08)
            axis.set(title=name, xlabel="score")
            _name_rows(axis, analysis.labels)


def _draw_improvements(path: Path, analysis: Analysis) -> None:
    note = "Share of pairs of runs in which the first ends above the second, ties half, mean over "
    note += "tasks. Bars: 95% stratified bootstrap intervals."
    tasks = list(dict.fromkeys(task for pair in analysis.improvements for task in pair.tasks))
    count = len(analysis.improvements)
    size = (6.5, 0.34 * count + 1.0)
    with saved_figure(path, analysis, tasks, note, size, (1, 1)) as (axis,):
        for place, pair in enumerate(analysis.improvements):
            _draw_interval(axis, place, pair.estimate, analysis, pair.label)
        axis.axvline(0.5, color="#999999", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        names = [f"{pair.label} above {pair.other}" for pair in analysis.improvements]
        axis.set(xlim=(-0.02, 1.02), xlabel="probability of improvement")
        _name_rows(axis, names)


def _name_rows(axis: Any, names: Sequence[str]) -> None:
    """Name the rows of intervals from top to bottom."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)


def _draw_interval(
    axis: Any, place: int, estimate: Estimate, analysis: Analysis, label: str
) -> None:
    colour, marker = look_of(analysis, label)
    if estimate.low is not None and estimate.high is not None:
        width = estimate.high - estimate.low
        axis.barh(place, width, 0.5, left=estimate.low, color=colour, alpha=0.3)
    axis.plot([estimate.value], [place], marker, color=colour, markersize=6)
