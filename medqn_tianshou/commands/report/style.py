"""The look of all figures of a report: colours, panels, and the protocol below the panels."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from medqn_tianshou.commands.report.analysis import Analysis
from medqn_tianshou.commands.report.curves import Array
from medqn_tianshou.commands.report.protocol import protocol_lines, short_name

STYLE: Any = {
    "text.parse_math": False,  # names may contain dollar signs
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "svg.fonttype": "none",  # text as text: small, and searchable
    "svg.hashsalt": "medqn",  # the same file from the same numbers
}
# Okabe and Ito's colours, which colour-blind people can tell apart.
OWN_COLOURS = {"MeDQN(U)": "#0072B2", "MeDQN(R)": "#009E73", "DQN": "#555555", "DQN(S)": "#D55E00"}
_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#000000", *OWN_COLOURS.values())
_MARKERS = "osD^vPX<>"
_COLUMNS = 3
_PANEL = (3.5, 2.5)
_SWARM_PLACES = 40
"""Dots of a swarm that are closer than this fraction of the axis would overlap."""
WITH_SEPARATORS = FuncFormatter(lambda value, _: f"{value:,g}".replace("-", "\N{MINUS SIGN}"))
"""Formats the numbers of an axis with thousands separators."""
_LETTERS_PER_INCH = 16
"""Width of the text below a figure; wide letters fit as well."""
MOST_LINES = 4
"""Figures refer to ``protocol.csv`` for a protocol with more lines."""


def look_of(analysis: Analysis, label: str) -> tuple[str, str]:
    """Return the colour and the marker of a label, the same in all figures."""
    place = analysis.labels.index(label)
    others = [other for other in analysis.labels if other not in OWN_COLOURS]
    free = [c for c in _COLOURS if c not in {OWN_COLOURS.get(name) for name in analysis.labels}]
    colour = OWN_COLOURS.get(label) or free[others.index(label) % len(free)]
    return colour, _MARKERS[place % len(_MARKERS)]


def swarm(values: Array, low: float, high: float) -> Array:
    """Return the offsets that keep dots from overlapping: 0, 1, -1, 2 and so on, off their axis.

    :param low: the lower end of the axis of the values; ``high`` is the upper end.
    """
    taken: dict[int, int] = {}
    places = np.zeros(len(values))
    for index, value in enumerate(values):
        near = round((value - low) / ((high - low) or 1) * _SWARM_PLACES)
        count = taken[near] = taken.get(near, 0) + 1
        places[index] = count // 2 * (-1) ** count
    return places


@contextmanager
def panel_per_task(
    path: Path, analysis: Analysis, note: str, *, panel: tuple[float, float] = _PANEL
) -> Iterator[dict[str, Any]]:
    """Give the axes of each task, with a legend above them; save the figure at the end.

    ``panel`` is the size of a panel in inches; see :func:`saved_figure` for the others.
    """
    count = len(analysis.tasks)
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    size = (panel[0] * columns, panel[1] * rows + 0.3)
    with saved_figure(path, analysis, analysis.tasks, note, size, (rows, columns)) as axes:
        for axis in axes[count:]:
            axis.set_visible(False)
        for axis in axes[:count:columns]:
            axis.set_ylabel("return")
        for task, axis in zip(analysis.tasks, axes, strict=False):
            axis.set_title(short_name(task))
            axis.yaxis.set_major_formatter(WITH_SEPARATORS)
        looks = {label: look_of(analysis, label) for label in analysis.labels}
        handles = [
            Line2D([], [], color=colour, marker=marker, markersize=5, label=label)
            for label, (colour, marker) in looks.items()
        ]
        across = max(1, int(size[0] / (0.7 + 0.07 * max(map(len, analysis.labels)))))
        above: Any = {"loc": "outside upper center", "ncols": across, "frameon": False}
        axes[0].figure.legend(handles=handles, **above)
        yield dict(zip(analysis.tasks, axes, strict=False))


@contextmanager
def saved_figure(
    path: Path,
    analysis: Analysis,
    tasks: Sequence[str],
    note: str,
    size: tuple[float, float],
    grid: tuple[int, int],
    **options: Any,
) -> Iterator[list[Any]]:
    """Give the axes of a figure with the protocol of some tasks below it; save it at the end.

    :param path: the files without their ending; PNG and SVG are written.
    :param note: explains the figure, below it.
    :param size: width and height in inches without the text below.
    :param grid: rows and columns of axes.
    :param options: for matplotlib's ``subplots``.
    """
    width, height = size
    protocols = [analysis.protocols[task] for task in tasks]
    lines = [*protocol_lines(protocols, most=MOST_LINES), note]
    columns = int(width * _LETTERS_PER_INCH)
    wrapped = [part for line in lines for part in textwrap.wrap(line, columns)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height + 0.13 * len(wrapped) + 0.1), layout="constrained")
        axes = figure.subplots(*grid, squeeze=False, **options)
        look: Any = {"fontsize": 7, "color": "#666666", "ha": "left", "linespacing": 1.35}
        figure.supxlabel("\n".join(wrapped), x=0.01, **look)
        yield list(axes.ravel())
        figure.savefig(path.with_suffix(".png"), dpi=130)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
