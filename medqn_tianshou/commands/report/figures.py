"""The figures of a report, each as PNG and SVG, with the protocol of its returns below it."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from medqn_tianshou.commands.curves import GRID_POINTS, SMOOTHING
from medqn_tianshou.commands.report.analysis import Analysis
from medqn_tianshou.commands.report.protocol import protocol_lines, short_name
from medqn_tianshou.commands.report.runs import RecordedRun
from medqn_tianshou.commands.report.statistics import AGGREGATES, HUMAN, Array, Estimate
from medqn_tianshou.training.memory import MB

_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "svg.fonttype": "none",  # text as text: small, and to be searched
    "svg.hashsalt": "medqn",  # the same file from the same numbers
}
# Okabe and Ito's colours, which colour-blind people can tell apart.
_OWN_COLOURS = {"MeDQN(U)": "#0072B2", "MeDQN(R)": "#009E73", "DQN": "#555555", "DQN(S)": "#D55E00"}
_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#000000", *_OWN_COLOURS.values())
_MARKERS = "osD^vPX<>"
_COLUMNS = 3
_PANEL = (3.5, 2.5)
_MOST_LINES = 4


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
    """Draw all figures; return their names without ending.

    :param out: the folder.
    :param analysis: the numbers.
    """
    mpl.use("Agg")
    names = []
    with mpl.rc_context(_STYLE):
        _draw_curves(out, analysis)
        names.append("learning_curves")
        if analysis.aggregates:
            _draw_aggregates(out, analysis)
            names.append("aggregates")
        if analysis.improvements:
            _draw_improvements(out, analysis)
            names.append("improvement")
        for cost in COSTS:
            if any(
                cost.of_run(run) is not None for runs in analysis.groups.values() for run in runs
            ):
                _draw_cost(out, analysis, cost)
                names.append(cost.name)
    return names


def smoothing_text(analysis: Analysis) -> str:
    """Say what learning curves went through."""
    if not analysis.is_smoothed:
        return "evaluations joined by straight lines, not smoothed"
    return f"smoothed exponentially (weight {SMOOTHING} of the past on {GRID_POINTS} points)"


def _draw_curves(out: Path, analysis: Analysis) -> None:
    note = f"Lines: mean over runs, {smoothing_text(analysis)}. "
    note += "Shaded: 95% bootstrap interval of the mean."
    with _panels(out / "learning_curves", analysis, note) as panels:
        for task, axis in panels.items():
            for label in analysis.of_task(task):
                line = analysis.line(task, label)
                colour, _ = _look(analysis, label)
                axis.plot(line.env_steps, line.mean, color=colour, linewidth=1.7)
                if line.low is not None and line.high is not None:
                    look = {"color": colour, "alpha": 0.18, "linewidth": 0}
                    axis.fill_between(line.env_steps, line.low, line.high, **look)
            axis.xaxis.set_major_formatter(mpl.ticker.EngFormatter(sep=""))
            axis.set_xlabel("environment steps")


def _draw_cost(out: Path, analysis: Analysis, cost: Cost) -> None:
    note = (
        "Filled: runs, drawn to the right of their place where all of them share one. Open: mean, "
    )
    note += "with the 95% bootstrap interval of the mean return."
    with _panels(out / cost.name, analysis, note) as panels:
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
                    _draw_runs(axis, xs, ys, *_look(analysis, label))
                    mean = analysis.final_mean(task, label)
                    _draw_mean(axis, float(xs.mean()), mean, *_look(analysis, label))
                    places += xs.tolist()
            _set_cost_axis(axis, cost, places)
            axis.margins(y=0.1)


def _draw_runs(axis: Any, xs: Array, ys: Array, colour: str, marker: str) -> None:
    shared = len(xs) > 1 and np.ptp(xs) == 0
    beside = mpl.transforms.offset_copy(axis.transData, axis.figure, 11 * shared, units="points")
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
        axis.xaxis.set_major_locator(mpl.ticker.MultipleLocator(_step(high / size) * size))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / size:g}")
    else:
        axis.xaxis.set_major_formatter(mpl.ticker.EngFormatter("B"))
    if cost.is_logarithmic:
        axis.set(xscale="log", xlim=(low / 4, high * 6))
        axis.xaxis.set_major_formatter(mpl.ticker.EngFormatter("B"))
        axis.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    else:
        axis.set_xlim(0, high * 1.15)


def _step(length: float) -> float:
    """A round step of which about four make a length."""
    power = 10.0 ** np.floor(np.log10(length / 4))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= length / 5))


def _draw_aggregates(out: Path, analysis: Analysis) -> None:
    scales = [
        (t, scale) for t in analysis.shared_tasks if (scale := analysis.scales[t]) is not None
    ]
    meanings = ["a random and a human player"] * any(scale.reason == HUMAN for _, scale in scales)
    meanings += [
        f"{scale.low:,g} and {scale.high:,g} in {task} ({scale.reason})"
        for task, scale in scales
        if scale.reason != HUMAN
    ]
    note = "Scores: 0 and 1 are " + "; ".join(meanings[:_MOST_LINES])
    note += "; others in scales.csv" if len(meanings) > _MOST_LINES else ""
    note += ". Bars: 95% stratified bootstrap intervals. Optimality gap: lower is better."
    with _figure(out / "aggregates", analysis, analysis.shared_tasks, note) as make:
        height = 0.34 * len(analysis.labels) + 1.1
        axes = make(1, len(AGGREGATES), (10.5, height), sharey=True)
        for axis, name in zip(axes, AGGREGATES, strict=True):
            for place, label in enumerate(analysis.labels):
                _draw_interval(axis, place, analysis.aggregates[label][name], analysis, label)
            axis.use_sticky_edges = False  # bars may begin at the edge
            axis.margins(x=0.08)
            axis.set(title=name, xlabel="score", ylim=(len(analysis.labels) - 0.4, -0.6))
            axis.grid(visible=False, axis="y")
            axis.tick_params(axis="y", length=0)
        axes[0].set_yticks(range(len(analysis.labels)), analysis.labels)


def _draw_improvements(out: Path, analysis: Analysis) -> None:
    note = "Share of pairs of runs in which the first ends above the second, ties half, mean over "
    note += "tasks. Bars: 95% stratified bootstrap intervals."
    tasks = list(dict.fromkeys(task for pair in analysis.improvements for task in pair.tasks))
    with _figure(out / "improvement", analysis, tasks, note) as make:
        count = len(analysis.improvements)
        (axis,) = make(1, 1, (6.5, 0.34 * count + 1.0))
        for place, pair in enumerate(analysis.improvements):
            _draw_interval(axis, place, pair.estimate, analysis, pair.label)
        axis.axvline(0.5, color="#999999", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        names = [f"{pair.label} above {pair.other}" for pair in analysis.improvements]
        axis.set_yticks(range(count), names)
        axis.set(xlim=(-0.02, 1.02), ylim=(count - 0.4, -0.6), xlabel="probability of improvement")
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)


def _draw_interval(
    axis: Any, place: int, estimate: Estimate, analysis: Analysis, label: str
) -> None:
    colour, marker = _look(analysis, label)
    if estimate.low is not None and estimate.high is not None:
        width = estimate.high - estimate.low
        axis.barh(place, width, 0.5, left=estimate.low, color=colour, alpha=0.3)
    axis.plot([estimate.value], [place], marker, color=colour, markersize=6)


def _look(analysis: Analysis, label: str) -> tuple[str, str]:
    """The colour and the marker of a label in all figures."""
    place = analysis.labels.index(label)
    others = [other for other in analysis.labels if other not in _OWN_COLOURS]
    free = [c for c in _COLOURS if c not in {_OWN_COLOURS.get(name) for name in analysis.labels}]
    colour = _OWN_COLOURS.get(label) or free[others.index(label) % len(free)]
    return colour, _MARKERS[place % len(_MARKERS)]


@contextmanager
def _panels(path: Path, analysis: Analysis, note: str) -> Iterator[dict[str, Any]]:
    """A panel per task, with a legend above them."""
    count = len(analysis.tasks)
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    with _figure(path, analysis, analysis.tasks, note, legend=True) as make:
        axes = make(rows, columns, (_PANEL[0] * columns, _PANEL[1] * rows + 0.3))
        for axis in axes[count:]:
            axis.set_visible(False)
        for axis in axes[:count:columns]:
            axis.set_ylabel("return")
        for task, axis in zip(analysis.tasks, axes, strict=False):
            axis.set_title(short_name(task))
        yield dict(zip(analysis.tasks, axes, strict=False))


@contextmanager
def _figure(
    path: Path, analysis: Analysis, tasks: Sequence[str], note: str, *, legend: bool = False
) -> Iterator[Callable[..., Any]]:
    """A figure that is saved at the end, with the protocol below it."""
    import matplotlib.pyplot as plt

    figure: Any = None

    def make(rows: int, columns: int, size: tuple[float, float], **options: Any) -> Any:
        nonlocal figure
        width = size[0]
        protocols = [analysis.protocols[task] for task in tasks]
        lines = [*protocol_lines(protocols, most=_MOST_LINES), note]
        wrapped = [part for line in lines for part in textwrap.wrap(line, int(width * 19))]
        size = (width, size[1] + 0.13 * len(wrapped) + 0.1)
        figure, axes = plt.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained", **options
        )
        look = {"fontsize": 7, "color": "#666666", "ha": "left", "x": 0.01, "linespacing": 1.35}
        figure.supxlabel("\n".join(wrapped), **look)
        return axes.ravel()

    yield make
    if legend:
        handles = []
        for label in analysis.labels:
            colour, marker = _look(analysis, label)
            line = mpl.lines.Line2D([], [], color=colour, marker=marker, markersize=5, label=label)
            handles.append(line)
        longest = max(map(len, analysis.labels))
        columns = max(1, int(figure.get_figwidth() / (0.7 + 0.07 * longest)))
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, frameon=False)
    figure.savefig(path.with_suffix(".png"), dpi=130)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)
