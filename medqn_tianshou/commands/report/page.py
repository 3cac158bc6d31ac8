"""The page of a report."""

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from medqn_tianshou.commands.parsing import one_line
from medqn_tianshou.commands.report.analysis import Analysis
from medqn_tianshou.commands.report.curves import format_mean
from medqn_tianshou.commands.report.figure_page import RELEASED_HEADER
from medqn_tianshou.commands.report.figures import COSTS, draw_figures
from medqn_tianshou.commands.report.protocol import protocol_lines
from medqn_tianshou.commands.report.runs import LeftOut
from medqn_tianshou.commands.report.statistics import AGGREGATES, HUMAN, Estimate
from medqn_tianshou.commands.report.tables import escape, mean_costs, table, tables, write_csv
from medqn_tianshou.experiments.settings import load_settings
from medqn_tianshou.training.memory import MB, format_bytes


def write_report(
    out: Path, analysis: Analysis, left_out: Sequence[LeftOut], *, title: str, command: str
) -> None:
    """Write the figures, the tables and the page to a folder."""
    figures = draw_figures(out, analysis)
    files = []
    for name, rows in tables(analysis).items():
        write_csv(out / f"{name}.csv", rows)
        files.append(f"`{name}.csv`")
    names = [f"- {escape(run.name)}: {escape(run.reason)}" for run in left_out]
    lines = [
        f"# {title}",
        "",
        *_overview(analysis),
        *_return_section(analysis),
        *_aggregate_section(analysis),
        *_improvement_section(analysis),
        *_cost_section(analysis, figures),
        *(["## Left out", "", *names, ""] if names else []),
        "## Command",
        "",
        f"    {one_line(command)}",
        "",
        f"Tables: {', '.join(files)}. Each figure is also available as SVG. "
        f"The runs were made with medqn-tianshou {_versions(analysis)}. Report: "
        f"medqn-tianshou {version('medqn-tianshou')}, rliable {version('rliable')}, "
        f"numpy {version('numpy')}; bootstrap seed {analysis.options.seed}.",
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n")


def picture(file: str, caption: str) -> list[str]:
    """Show a picture with its caption; return the lines and an empty one."""
    return [f"![{caption}]({file})", "", f"*{caption}.*", ""]


def _versions(analysis: Analysis) -> str:
    counts = Counter(run.version for runs in analysis.groups.values() for run in runs)
    if len(counts) == 1:
        return escape(*counts)
    return ", ".join(f"{escape(name)} ({count} runs)" for name, count in sorted(counts.items()))


def _overview(analysis: Analysis) -> list[str]:
    count = sum(map(len, analysis.groups.values()))
    kind = {"train": "Training", "eval": "Evaluation"}[analysis.options.metric]
    return [
        f"{kind} returns of {count} {'run' if count == 1 else 'runs'}: "
        f"{_names(analysis.labels)} on {_names(analysis.tasks)}. Intervals are 95% bootstrap "
        f"intervals over runs ({analysis.options.repetitions:,} resamples).",
        "",
    ]


def _return_section(analysis: Analysis) -> list[str]:
    lines = ["## Returns by task", ""]
    for task in analysis.tasks:
        scale = analysis.scales[task]
        is_scored = scale is not None and scale.is_absolute
        header = [task, "mean [95%]", "median", "lowest", "highest"]
        header += [*[RELEASED_HEADER] * bool(analysis.finals_100), "runs"]
        rows = []
        for label in analysis.of_task(task):
            values = analysis.finals[task, label]
            digits = _digits(values)
            row = [label, _write(analysis.final_mean(task, label), digits)]
            row += [f"{measure(values):,.{digits}f}" for measure in (np.median, np.min, np.max)]
            if analysis.finals_100:
                row.append(format_mean(analysis.finals_100[task, label], digits, ddof=0))
            row.append(str(len(values)))
            row += [f"{analysis.scores(task, label).mean():.2f}"] * is_scored
            rows.append(row)
        lines += table([*header, *["score"] * is_scored], rows)
        if scale is not None and is_scored:
            lines += [f"Score: {scale.low:,g} is 0, {scale.high:,g} is 1 ({scale.reason}).", ""]
        lines += _protocol(analysis, [task])
    return [
        *lines,
        *picture("learning_curves.png", analysis.curve_text.removesuffix(".")),
        *picture("final_returns.png", "Final return of each run, with the mean of each algorithm"),
    ]


def _aggregate_section(analysis: Analysis) -> list[str]:
    tasks = analysis.shared_tasks
    lines = ["## Over tasks", ""]
    if not tasks:
        reason = "no task has runs of every algorithm with different returns"
        return [*lines, f"There are no aggregates: {reason}.", ""]
    scales = {task: scale for task in tasks if (scale := analysis.scales[task]) is not None}
    rows = [
        [label, *(_write(found[name], 2) for name in AGGREGATES)]
        for label, found in analysis.aggregates.items()
    ]
    lines += [
        *table(["", *AGGREGATES], rows),
        *_protocol(analysis, tasks),
        "The aggregates are over scores, which are scaled final returns. IQM is the mean of the "
        "middle half of all runs. Mean and median are over the means of the tasks. The optimality "
        "gap is the mean distance of scores below 1; lower is better. Tasks have equal weight, "
        "however many runs they have. The intervals are those of rliable's stratified bootstrap, "
        "which resamples the runs of each task separately.",
        "",
        *table(
            ["task", "score 0", "score 1", "source"],
            [
                [task, f"{scale.low:,g}", f"{scale.high:,g}", scale.reason]
                for task, scale in scales.items()
            ],
        ),
    ]
    if not all(scale.is_absolute for scale in scales.values()):
        lines += ["Scores based on these runs are comparable only within this report.", ""]
    if any(scale.reason == HUMAN for scale in scales.values()):
        lines += [f"Random and human player: {load_settings('atari_scores')['source']}.", ""]
    missing = [task for task in analysis.tasks if task not in tasks]
    if missing:
        reason = "without runs of every algorithm, or with equal returns"
        lines += [f"Left out here: {_names(missing)} ({reason}).", ""]
    return [*lines, *picture("aggregates.png", "Aggregates over tasks with 95% intervals")]


def _improvement_section(analysis: Analysis) -> list[str]:
    if not analysis.improvements:
        return []
    tasks = list(dict.fromkeys(task for pair in analysis.improvements for task in pair.tasks))
    rows = [
        [f"{p.label} ends above {p.other}", _write(p.estimate, 2), ", ".join(p.tasks)]
        for p in analysis.improvements
    ]
    return [
        "## Probability of improvement",
        "",
        *table(["", "probability [95%]", "tasks"], rows),
        *_protocol(analysis, tasks),
        "The probability that a run of the first algorithm has a higher final return than a run of "
        "the second, over all pairs of runs. Ties count half; tasks have equal weight. 0.5 means "
        "no difference.",
        "",
        *picture("improvement.png", "Probability of improvement with 95% intervals"),
    ]


def _cost_section(analysis: Analysis, figures: Sequence[str]) -> list[str]:
    rows = []
    for (task, label), runs in analysis.groups.items():
        mean = _write(analysis.final_mean(task, label), _digits(analysis.finals[task, label]))
        replay, rss, seconds = mean_costs(runs).values()
        costs = [
            "unknown" if replay is None else format_bytes(round(replay)),
            "unknown" if rss is None else format_bytes(round(rss * MB)),
            "unknown" if seconds is None else _duration(seconds),
        ]
        rows.append([task, label, mean, *costs])
    header = ["task", "", "mean return [95%]", "replay", "peak RSS", "training time"]
    machines = sorted({run.cpu for runs in analysis.groups.values() for run in runs})
    lines = [
        "## Return against memory and time",
        "",
        *table(header, rows),
        *_protocol(analysis, analysis.tasks),
        "The table shows means over runs. Replay is the size of the buffer at the end of the run. "
        "Peak RSS is that of the whole process; if replay is small, most of it is libraries. "
        "Training time excludes warm-up and evaluation, and is comparable only between runs that "
        f"had the same machine to themselves (here: {_names(machines)}).",
        "",
    ]
    for cost in COSTS:
        if cost.name in figures:
            lines += picture(f"{cost.name}.png", f"Final return against {cost.title}")
    return lines


def _protocol(analysis: Analysis, tasks: Sequence[str]) -> list[str]:
    """State the protocol below a table or a figure."""
    lines = protocol_lines([analysis.protocols[task] for task in tasks])
    return [part for line in lines for part in (f"*{escape(line)}*", "")]


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(escape, names))


def _write(estimate: Estimate, digits: int) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:,.{digits}f}"
    low, high = (f"{end:,.{digits}f}" for end in (estimate.low, estimate.high))
    return f"{estimate.value:,.{digits}f} [{low}, {high}]"


def _digits(values: np.ndarray[Any, Any]) -> int:
    """Return how many decimals values of this size need."""
    return 2 if np.abs(values).max() < 10 else 1 if np.abs(values).max() < 10_000 else 0


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
