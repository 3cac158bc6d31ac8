"""Draw docs/results/memory/processes.png: the memory of training processes, in stacked bars.

Run it as ``python -m docs.figures.processes``. The numbers come from ``docs/results/memory``.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.memory.processes import shares, with_separators
from medqn_tianshou.commands.report.style import STYLE, WITH_SEPARATORS

FOLDER = Path(__file__).parents[1] / "results/memory"
COLOURS = {"libraries": "#b8bec6", "network": "#4e79a7", "buffer": "#e15759", "rest": "#e3d5b8"}
TITLES = {"atari": "Atari, Qbert", "minatar": "MinAtar, Seaquest", "lowdim": "MountainCar"}
KINDS = {"stock": "Tianshou's classes", "raw": "raw", "compact": "compact"}
MOST = 1500
"""MB at which bars are truncated: Tianshou's Atari buffer alone has 7 GB."""


def main() -> None:
    """Draw the figure."""
    parts = json.loads((FOLDER / "memory.json").read_text())["parts"]
    trainings = parts["rss"]["measured"]["trainings"]
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        draw(trainings).savefig(FOLDER / "processes.png", dpi=130)


def draw(trainings: list[dict[str, Any]]) -> Figure:
    """Draw a bar for each training, and a panel for each family."""
    counts = [sum(row["family"] == family for row in trainings) for family in TITLES]
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.subplots(len(TITLES), sharex=True, height_ratios=counts)
    for axis, (family, title) in zip(axes, TITLES.items(), strict=True):
        rows = [row for row in trainings if row["family"] == family]
        for place, row in enumerate(rows):
            left = 0.0
            for share, nbytes in shares(row).items():
                width = min(nbytes / 1e6, MOST - left)
                label = share if axis is axes[0] and place == 0 else None
                axis.barh(-place, width, left=left, color=COLOURS[share], height=0.7, label=label)
                left += width
            paper = f"   (paper: {with_separators(row['paper'])})" if row["paper"] else ""
            cut = "  // " if row["peak_rss"] / 1e6 > MOST else " "
            axis.text(left, -place, f"{cut}{row['peak_rss'] / 1e6:,.0f} MB{paper}", va="center")
        names = [f"{row['label']}, {row['buffer_size']:,}, {KINDS[row['replay']]}" for row in rows]
        axis.set_yticks([-place for place in range(len(rows))], names)
        axis.set_title(title, loc="left")
        axis.set_xlim(0, MOST * 1.32)
    axes[-1].set_xlabel("peak resident memory of the process, MB")
    axes[-1].set_xticks(range(0, MOST + 1, 250))
    axes[-1].xaxis.set_major_formatter(WITH_SEPARATORS)
    figure.legend(loc="outside upper right", ncols=len(COLOURS), frameon=False)
    return figure


if __name__ == "__main__":
    main()
