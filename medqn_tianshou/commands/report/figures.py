"""The figures of a report, each as PNG and SVG, with the protocol of its returns below it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import EngFormatter, NullLocator

from medqn_tianshou.commands.report.analysis import Analysis
from medqn_tianshou.commands.report.curves import Array
from medqn_tianshou.commands.report.protocol import short_name
from medqn_tianshou.commands.report.published import published_marks
from medqn_tianshou.commands.report.runs import RecordedRun
from medqn_tianshou.commands.report.statistics import AGGREGATES, HUMAN, Estimate
from medqn_tianshou.commands.report.style import (
    MOST_LINES,
    WITH_SEPARATORS,
    look_of,
    panel_per_task,
    saved_figure,
    swarm,
)
from medqn_tianshou.training.memory import MB


class Cost(NamedTuple):
    """What a return is plotted against: a field of :class:`RecordedRun`."""

    name: str
    title: str
    field: str


COSTS = (
    Cost("return_replay", "replay memory at the end of the run", "buffer_mb"),
    Cost("return_rss", "peak memory of the process (RSS)", "peak_rss_mb"),
    Cost("return_time", "training time", "train_seconds"),
    Cost("return_cpu", "CPU time of the process", "cpu_seconds"),
)


def draw_figures(out: Path, analysis: Analysis) -> list[str]:
    """Draw all figures; return their names without ending."""
    draw: dict[str, Callable[[Path], None]] = {
        "learning_curves": lambda path: draw_curves(path, analysis),
        "final_returns": lambda path: _draw_finals(path, analysis),
    }
    if analysis.aggregates:
        draw["aggregates"] = lambda path: _draw_aggregates(path, analysis)
    if analysis.improvements:
        draw["improvement"] = lambda path: _draw_improvements(path, analysis)
    runs = [run for group in analysis.groups.values() for run in group]
    for cost in COSTS:
        if any(getattr(run, cost.field) is not None for run in runs):
            draw[cost.name] = partial(_draw_cost, analysis=analysis, cost=cost)
    for name, draw_one in draw.items():
        draw_one(out / name)
    return list(draw)


def draw_curves(path: Path, analysis: Analysis, **options: Any) -> None:
    """Draw the learning curves, and behind those of Atari what was published."""
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


def _draw_finals(path: Path, analysis: Analysis) -> None:
    """Draw a row per algorithm: its runs as a swarm, their mean and its interval below them."""
    note = "Dots: runs. Open: mean, with its 95% bootstrap interval."
    columns = min(len(analysis.tasks), 2)
    rows = -(-len(analysis.tasks) // columns)
    size = (7.0, rows * (0.5 * len(analysis.labels) + 0.8))
    with saved_figure(path, analysis, analysis.tasks, note, size, (rows, columns)) as axes:
        for index, axis in enumerate(axes):
            if index >= len(analysis.tasks):
                axis.set_visible(False)
                continue
            task = analysis.tasks[index]
            found = analysis.of_task(task)
            everything = np.concatenate([analysis.finals[task, label] for label in found])
            for row, label in enumerate(found):
                colour, marker = look_of(analysis, label)
                returns = np.sort(analysis.finals[task, label])
                places = swarm(returns, everything.min(), everything.max())
                look = {"color": colour, "marker": marker, "alpha": 0.6, "linewidth": 0}
                axis.scatter(returns, row - 0.1 - 0.06 * places, 10, **look)
                mean = analysis.final_mean(task, label)
                _draw_mean(axis, row + 0.32, mean, colour, marker, across=True)
            axis.set(title=short_name(task), xlabel="final return")
            axis.xaxis.set_major_formatter(WITH_SEPARATORS)
            _name_rows(axis, list(found))


def _draw_cost(path: Path, analysis: Analysis, cost: Cost) -> None:
    note = "Filled: runs. Open: mean, with the 95% bootstrap interval of the mean return."
    with panel_per_task(path, analysis, note) as panels:
        for task, axis in panels.items():
            places = {
                label: np.array([getattr(run, cost.field) for run in runs], float)
                for label, runs in analysis.of_task(task).items()
            }
            unit, size = _set_cost_axis(axis, cost, np.concatenate([*places.values()]))
            for label, at in places.items():
                known = ~np.isnan(at)
                if known.any():
                    xs, (colour, marker) = at[known] / size, look_of(analysis, label)
                    look = {"color": colour, "marker": marker, "alpha": 0.5, "linewidth": 0}
                    axis.scatter(xs, analysis.finals[task, label][known], 12, **look)
                    mean = analysis.final_mean(task, label)
                    _draw_mean(axis, float(xs.mean()), mean, colour, marker)
            axis.set_xlabel(f"{cost.title} ({unit})" if unit else cost.title)
            axis.margins(y=0.1)


def _draw_mean(
    axis: Any, place: float, mean: Estimate, colour: str, marker: str, *, across: bool = False
) -> None:
    """Draw a mean and its interval up and down, or across where returns are on that axis."""
    point = (mean.value, place) if across else (place, mean.value)
    if mean.low is not None and mean.high is not None:
        ends = [[mean.value - mean.low], [mean.high - mean.value]]
        interval = {"xerr" if across else "yerr": ends}
        axis.errorbar(*point, **interval, color=colour, linewidth=1.6, capsize=4)
    look = {"markersize": 7, "markerfacecolor": "white", "markeredgewidth": 1.6}
    axis.plot(*point, marker, color=colour, zorder=3, **look)


def _set_cost_axis(axis: Any, cost: Cost, places: Array) -> tuple[str, float]:
    """Leave room at both sides; return the unit to name and its size, in that of the places."""
    known = places[~np.isnan(places)]
    if not len(known):
        return "", 1
    low, high = known.min(), known.max()
    if cost.name in ("return_time", "return_cpu"):
        units = (("h", 3600), ("min", 60), ("s", 1))
        unit, size = next((unit, size) for unit, size in units if high >= 2 * size or size == 1)
        axis.set_xlim(0, high / size * 1.15 or 1)
        return unit, size
    axis.set_xlim(0, high * MB * 1.15 or 1)
    if cost.name == "return_replay" and high > 0:
        low = known[known > 0].min()  # 0, without replay, has no place
        axis.set(xscale="log", xlim=(low * MB / 4, high * MB * 6))
        axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(EngFormatter("B"))
    return "", 1 / MB


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
    size, grid = (7.0, 2 * (0.34 * len(analysis.labels) + 0.9)), (2, len(AGGREGATES) // 2)
    with saved_figure(path, analysis, analysis.shared_tasks, note, size, grid, sharey=True) as axes:
        for axis, name in zip(axes, AGGREGATES, strict=True):
            for place, label in enumerate(analysis.labels):
                _draw_interval(axis, place, analysis.aggregates[label][name], analysis, label)
            axis.use_sticky_edges = False  # bars may begin at the edge
            axis.margins(x=0.08)
            axis.set(title=name, xlabel="score")
            _name_rows(axis, analysis.labels)


def _draw_improvements(path: Path, analysis: Analysis) -> None:
    note = "Probability that a run of the first ends above a run of the second (ties count half), "
    note += "mean over tasks. Bars: 95% stratified bootstrap intervals."
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
