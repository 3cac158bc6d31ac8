"""Learn a sine function in two stages, without and with knowledge consolidation (Figure 1).

The defaults are the paper's. Example:

  %(prog)s --seeds 5 --updates 1000 --out docs/results/fig1
"""

import csv
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from medqn_tianshou.algorithm.networks import MLPQNetwork
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.report.command import check_out
from medqn_tianshou.commands.report.curves import mean_and_error
from medqn_tianshou.commands.report.style import STYLE
from medqn_tianshou.commands.report.tables import table, write_csv
from medqn_tianshou.experiments.sine import (
    GRID_POINTS,
    METHODS,
    STAGES,
    UPDATES_PER_STAGE,
    ErrorRow,
    grid,
    measure,
    train,
    true_function,
)

COUNT = number(int, at_least=1)
TITLE = "# Figure 1: a sine function, learned in two stages"
# Colour (not that of an algorithm) and line width; stage 1 is wider, so that it stays visible.
STAGE_LINES = {1: ("#E69F00", 3.2), 2: ("#000000", 1.7)}
# For each seed, the network as it was at the end of each stage.
Runs = Sequence[Sequence[MLPQNetwork]]


def error_table(path: Path) -> str:
    """Summarise ``errors.csv`` as a table: mean and standard error over the seeds."""
    errors: dict[tuple[str, str, str], list[float]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["method"], row["stage"], row["interval"])
            errors.setdefault(key, []).append(float(row["mse"]))
    intervals = list(dict.fromkeys(interval for _, _, interval in errors))
    lines = [["method", "after stage", *(f"error on {interval}" for interval in intervals)]]
    for method, stage in dict.fromkeys((method, stage) for method, stage, _ in errors):
        cells = [describe(errors[method, stage, interval]) for interval in intervals]
        lines.append([METHODS[method], stage, *cells])
    return "\n".join(table(lines[0], lines[1:])[:-1])


def describe(errors: Sequence[float]) -> str:
    """Format an error, or the mean, standard error and median of several."""
    if len(errors) == 1:
        return f"{errors[0]:.1e}"
    # The median too: one seed with units that no longer learn can make up all of the mean.
    mean, error = mean_and_error(np.array(errors))
    return f"{mean:.1e} ± {error:.1e} (median {np.median(errors):.1e})"


def draw(path: Path, learned: Mapping[str, Runs]) -> None:
    """Draw the figure: a panel per method."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.3), layout="constrained")
        panels = figure.subplots(1, len(learned), sharey=True)
        for letter, axis, (method, runs) in zip("ab", panels, learned.items(), strict=True):
            axis.set_title(f"({letter}) {METHODS[method]}")
            draw_panel(axis, runs)
        panels[0].set_ylabel("y")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(path, dpi=130)


@torch.no_grad()
def draw_panel(axis: Axes, runs: Runs) -> None:
    """Draw the sine and what was learned: the first seed bold, the others faint behind it."""
    x_B1 = grid(STAGES[1][0], STAGES[2][1])
    axis.axvline(STAGES[1][1], color="#666666", linestyle=":", linewidth=1.4)
    axis.plot(x_B1, true_function(x_B1), color="#bbbbbb", linewidth=6, label="true function")
    for stage, (colour, width) in STAGE_LINES.items():
        for learned in runs[1:]:
            axis.plot(x_B1, learned[stage - 1](x_B1)[0], color=colour, alpha=0.35, linewidth=0.9)
        first = runs[0][stage - 1](x_B1)[0]
        label = f"learned after stage {stage}"
        axis.plot(x_B1, first, color=colour, linewidth=width, label=label, zorder=3)
        axis.text(sum(STAGES[stage]) / 2, -2.2, f"stage {stage}", ha="center", color="#666666")
    if len(runs) > 1:
        axis.plot([], [], color="#888888", alpha=0.6, linewidth=0.9, label="other seeds")
    axis.set(xlabel="x", xlim=(0, 2), ylim=(-2.4, 2.4), xticks=np.arange(0, 2.1, 0.5))


def readme_text(*, seeds: int, command: str, errors: str) -> str:
    """Write the page; ``errors`` is the table of errors."""
    used = "seed 0" if seeds == 1 else f"seeds 0 to {seeds - 1}"
    statistic = "error" if seeds == 1 else f"mean ± standard error (and median) over {seeds} seeds"
    return f"""{TITLE}

![The sine and what was learned after each stage](fig1.png)

A network learns y = sin(πx) from x in [0, 1] (stage 1), then from x in [1, 2] (stage 2). With
consolidation, the loss of stage 2 also keeps the network close to its target network, a copy from
the end of stage 1, on inputs sampled uniformly within the bounds of stage 1. No sample is stored.
Bold lines show seed 0.

The error is the mean squared error on {GRID_POINTS:,} evenly spaced inputs of the interval.
After each stage, the {statistic}:

{errors}

If a curve is flat over much of [1, 2], no ReLU unit of the last hidden layer is active there, so
no gradient reaches the hidden weights, with or without consolidation.

Command: `{command}`
with {used}; Python {platform.python_version()}, torch {torch.__version__}, \
numpy {np.__version__}.
The table is computed from [errors.csv](errors.csv).
"""


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line."""
    parser = Parser(prog=prog, description=__doc__)
    for flags, kind, default, text in (
        (["--seeds"], COUNT, 5, "number of seeds, counted from 0; bold lines show seed 0"),
        (["--updates", "--budget"], COUNT, UPDATES_PER_STAGE, "updates in each of the two stages"),
    ):
        help_text = f"{text} (default: %(default)s)"
        parser.add_argument(*flags, type=kind, default=default, help=help_text)
    parser.add_out(Path("docs/results/fig1"))
    return parser


def prepare_folder(parser: Parser, out: Path) -> None:
    """Make the folder of the results, or report why it cannot be used."""
    readme = out / "README.md"
    check_out(parser, out)
    if readme.exists() and not readme.read_bytes().startswith(TITLE.encode()):
        parser.bad("--out", out, "has a README.md of something else; name another folder")


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Train both methods on all seeds; write the figure, the errors and a page."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    prepare_folder(parser, args.out)
    parser.check_overwrite(args)
    # The networks are tiny: more threads only wait for each other.
    torch.set_num_threads(1)
    rows: list[ErrorRow] = []
    runs: dict[str, list[list[MLPQNetwork]]] = {method: [] for method in METHODS}
    for seed in range(args.seeds):
        for method in METHODS:
            consolidate = method == "consolidation"
            learned = train(seed=seed, consolidate=consolidate, updates=args.updates)
            rows += measure(seed, method, learned)
            runs[method].append(learned)
    write_csv(args.out / "errors.csv", list(map(asdict, rows)))
    draw(args.out / "fig1.png", runs)
    errors = error_table(args.out / "errors.csv")
    text = readme_text(seeds=args.seeds, command=parser.typed(arguments), errors=errors)
    (args.out / "README.md").write_text(text, encoding="utf-8")
    print(f"{errors}\nfiles: {args.out}")
    return 0
