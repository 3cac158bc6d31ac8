"""The page of a figure of the paper: its table and its learning curves."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from medqn_tianshou.commands.report.analysis import Analysis, Options, read_curves
from medqn_tianshou.commands.report.curves import Array, final_returns, format_mean
from medqn_tianshou.commands.report.figures import draw_curves
from medqn_tianshou.commands.report.groups import Groups
from medqn_tianshou.commands.report.runs import RecordedRun, read_runs
from medqn_tianshou.commands.report.tables import escape, table
from medqn_tianshou.experiments.figures import Figure

OPTIONS = Options(metric="train")
PANEL = (6.2, 3.6)
RELEASED_HEADER = "last 100 episodes, as in the released analysis: mean ± standard error (ddof 0)"
Cell = tuple[str, str]
"""The label of a line, and the values of what was tuned."""


def write_figure_page(
    out: Path, figure: Figure, lines: Mapping[Cell, Sequence[Path]], command: str
) -> None:
    """Write table and picture from the results of finished runs; of a grid, the best of each line.

    :param lines: the files of the runs of each line, or of each cell of its grid.
    :raises RuntimeError: if no run can be shown.
    """
    files = [file for of_line in lines.values() for file in of_line]
    runs, left_out = read_runs(files)
    curves, without = read_curves(runs, OPTIONS)
    left_out += without
    by_name = {run.name: run for run in runs if run.name in curves}
    if not by_name:
        raise RuntimeError(f"there is nothing to draw: {left_out[0].name}: {left_out[0].reason}")
    found: dict[Cell, list[RecordedRun]] = {}
    for cell, of_line in lines.items():
        names = [str(file.with_suffix("")) for file in of_line]
        if of_cell := [by_name[name] for name in names if name in by_name]:
            found[cell] = of_cell
    finals = {
        cell: final_returns(curves[run.name] for run in of_cell) for cell, of_cell in found.items()
    }
    groups: Groups = {}
    for label, best, count in best_cells(finals):
        tuned = f" (best of {count}: {best[1]})" if count > 1 else ""
        groups[found[best][0].task, f"{label}{tuned}"] = found[best]
    analysis = Analysis(groups, curves, OPTIONS, labels=[label for _, label in groups])
    draw_curves(out / figure.name, analysis, panel=PANEL)
    (window,) = {protocol.window for protocol in analysis.protocols.values()}
    header = f"final return (last {window} episodes): mean ± standard error (ddof 1)"
    rows = [
        [
            label,
            format_mean(values, 1),
            f"{np.median(values):,.1f}",
            format_mean(analysis.finals_100[task, label], 1, ddof=0),
            str(len(values)),
        ]
        for (task, label), values in analysis.finals.items()
    ]
    page = [
        f"# {figure.title}",
        "",
        *table(["", header, "median", RELEASED_HEADER, "runs"], rows),
        f"![{figure.title}]({figure.name}.png)",
        "",
        f"Returns are averaged over the last {window} episodes. {analysis.curve_text}",
        *(["", figure.note] if figure.note else []),
        *_grid_section(finals, header),
        *(f"\nLeft out: {escape(run.name)}: {escape(run.reason)}." for run in left_out),
        "",
        f"Command: `{command}`, seeds counted from 0. Episodes, settings and summary of each run "
        "are in `raw/`.",
        "",
        describe_machine(json.loads(files[-1].read_text())),
    ]
    (out / "README.md").write_text("\n".join(page) + "\n")


def best_cells(finals: Mapping[Cell, Array]) -> list[tuple[str, Cell, int]]:
    """Return each line, its cell with the highest mean final return, and how many cells it has."""
    counts = Counter(label for label, _ in finals)
    return [
        (label, max((c for c in finals if c[0] == label), key=lambda c: finals[c].mean()), count)
        for label, count in counts.items()
    ]


def _grid_section(finals: Mapping[Cell, Array], header: str) -> list[str]:
    """Show all cells of a grid: the best of many is higher than one chosen beforehand."""
    tuned = {cell: values for cell, values in finals.items() if cell[1]}
    if not tuned:
        return []
    rows = [[*cell, format_mean(v, 1), str(len(v))] for cell, v in tuned.items()]
    note = "Each line above is the best of its cells by mean final return, on the seeds shown:"
    return ["", f"{note} higher than a setting chosen beforehand would be.", "",
            *table(["", "setting", header, "runs"], rows)[:-1]]  # fmt: skip


def describe_machine(record: Mapping[str, Mapping[str, object]]) -> str:
    """Name the versions and the machine of a run, from its ``config.json``."""
    versions, hardware = record["versions"], record["hardware"]
    names = ("tianshou", "torch", "gymnasium", "numpy")
    packages = ", ".join(f"{name} {versions[name]}" for name in names)
    machine = f"{hardware['cpu']}, {hardware['cpu_cores']} cores, one thread per run"
    return f"Versions: Python {versions['python']}, {packages}. Machine: {machine}."
