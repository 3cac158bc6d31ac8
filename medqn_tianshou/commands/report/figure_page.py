"""The page of a figure of the paper: its table and its learning curves."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from medqn_tianshou.commands.report.analysis import Analysis, Options, read_curves
from medqn_tianshou.commands.report.curves import format_mean
from medqn_tianshou.commands.report.figures import draw_curves
from medqn_tianshou.commands.report.groups import Groups
from medqn_tianshou.commands.report.markdown import table
from medqn_tianshou.commands.report.runs import read_runs
from medqn_tianshou.experiments.figures import Figure

OPTIONS = Options(metric="train", interval="two standard errors")
"""As the paper draws its figures."""
PANEL = (6.2, 3.6)
RELEASED_HEADER = (
    "last 100 episodes, as the released analysis has it: mean ± standard error (ddof 0)"
)


def write_figure_page(
    out: Path, figure: Figure, lines: Mapping[str, Sequence[Path]], command: str
) -> None:
    """Write table and picture from the results of finished runs.

    :param out: the folder of the page.
    :param lines: the files of the runs of each line, by label.
    :param command: what was run.
    :raises RuntimeError: if no run can be shown.
    """
    files = [file for of_line in lines.values() for file in of_line]
    runs, left_out = read_runs(files)
    curves, without = read_curves(runs, OPTIONS)
    left_out += without
    by_name = {run.name: run for run in runs if run.name in curves}
    if not by_name:
        raise RuntimeError(f"there is nothing to draw: {left_out[0].name}: {left_out[0].reason}")
    groups: Groups = {}
    for label, of_line in lines.items():
        found = [
            by_name[name] for file in of_line if (name := str(file.with_suffix(""))) in by_name
        ]
        if found:
            groups[found[0].task, label] = found
    analysis = Analysis(groups, curves, OPTIONS, labels=[label for _, label in groups])
    draw_curves(out / figure.name, analysis, panel=PANEL)
    (window,) = {protocol.window for protocol in analysis.protocols.values()}
    record = json.loads(files[-1].read_text())
    page = [
        f"# {figure.title}",
        "",
        *table(
            [
                "",
                f"final return (last {window} episodes): mean ± standard error (ddof 1)",
                "median",
                RELEASED_HEADER,
                "runs",
            ],
            [
                [
                    label,
                    format_mean(values, 1),
                    f"{np.median(values):,.1f}",
                    format_mean(analysis.finals_100[task, label], 1, ddof=0),
                    str(len(values)),
                ]
                for (task, label), values in analysis.finals.items()
            ],
        ),
        f"![{figure.title}]({figure.name}.png)",
        "",
        f"Returns are averaged over the last {window} episodes. {analysis.curve_text}",
        *(["", figure.note] if figure.note else []),
        *(f"\nLeft out: `{run.name}`: {run.reason}." for run in left_out),
        "",
        f"Command: `{command}`, seeds counted from 0. Episodes, settings and summary of each run "
        "are in `raw/`.",
        "",
        describe_machine(record),
    ]
    (out / "README.md").write_text("\n".join(page) + "\n")


def describe_machine(record: Mapping[str, Mapping[str, object]]) -> str:
    """Name the versions and the machine of a run.

    :param record: the run's ``config.json``.
    """
    versions, hardware = record["versions"], record["hardware"]
    names = ("tianshou", "torch", "gymnasium", "numpy")
    packages = ", ".join(f"{name} {versions[name]}" for name in names)
    machine = f"{hardware['cpu']}, {hardware['cpu_cores']} cores, one thread per run"
    return f"Versions: Python {versions['python']}, {packages}. Machine: {machine}."
