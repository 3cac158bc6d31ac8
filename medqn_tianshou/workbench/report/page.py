"""The page of a report, and its tables as CSV."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from medqn_tianshou.memory import MB, format_bytes
from medqn_tianshou.settings import load_settings
from medqn_tianshou.workbench.report.analysis import Analysis
from medqn_tianshou.workbench.report.figures import draw_figures, protocol_lines
from medqn_tianshou.workbench.report.runs import LeftOut, RecordedRun
from medqn_tianshou.workbench.report.statistics import AGGREGATES, Estimate

Row = dict[str, Any]


def write_report(
    out: Path, analysis: Analysis, left_out: Sequence[LeftOut], *, title: str, command: str
) -> None:
    """Write the figures, the tables and the page.

    :param out: the folder, which exists.
    :param analysis: the numbers.
    :param left_out: the runs that are not part of it.
    :param title: the heading.
    :param command: what the user typed.
    """
    figures = draw_figures(out, analysis)
    for name, rows in tables(analysis).items():
        if rows:
            write_csv(out / f"{name}.csv", rows)
    lines = _page(analysis, left_out, title, command, figures)
    (out / "README.md").write_text("\n".join(lines) + "\n")


def tables(analysis: Analysis) -> dict[str, list[Row]]:
    """All tables of a report by name."""
    return {
        "runs": list(_run_rows(analysis)),
        "returns": list(_return_rows(analysis)),
        "curves": list(_curve_rows(analysis)),
        "protocol": [asdict(protocol) for protocol in analysis.protocols.values()],
        "scales": [
            {"task": task, **asdict(scale)} for task, scale in analysis.scales.items() if scale
        ],
        "aggregates": [
            {"algorithm": label, "tasks": " ".join(analysis.shared_tasks), "aggregate": name}
            | asdict(estimates[name])
            for label, estimates in analysis.aggregates.items()
            for name in AGGREGATES
        ],
        "improvement": [
            {"algorithm": pair.label, "over": pair.other, "tasks": " ".join(pair.tasks)}
            | asdict(pair.estimate)
            for pair in analysis.improvements
        ],
    }


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write a table; missing values are empty.

    :param path: the file.
    :param rows: its rows, at least one.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _run_rows(analysis: Analysis) -> Iterator[Row]:
    for (task, label), runs in analysis.groups.items():
        returns, scores = analysis.finals[task, label], analysis.scores(task, label)
        for run, value, score in zip(runs, returns, scores, strict=True):
            yield {
                "task": task,
                "algorithm": label,
                "seed": run.seed,
                "status": run.status,
                "metric": analysis.options.metric,
                "window": run.window(analysis.options.metric, analysis.options.window),
                "final_return": float(value),
                "score": None if np.isnan(score) else float(score),
                "env_steps": run.env_steps,
                **_costs([run]),
                "cpu": run.cpu,
                "run": run.name,
            }


def _return_rows(analysis: Analysis) -> Iterator[Row]:
    for (task, label), runs in analysis.groups.items():
        returns = analysis.finals[task, label]
        mean = analysis.final_mean(task, label)
        yield {
            "task": task,
            "algorithm": label,
            "metric": analysis.options.metric,
            "window": analysis.protocols[task].window,
            "runs": len(runs),
            "mean": mean.value,
            "mean_low": mean.low,
            "mean_high": mean.high,
            "median": float(np.median(returns)),
            "lowest": float(returns.min()),
            "highest": float(returns.max()),
            **_costs(runs),
        }


def _curve_rows(analysis: Analysis) -> Iterator[Row]:
    for task, label in analysis.groups:
        line = analysis.line(task, label)
        nothing = [None] * len(line.mean)
        low = nothing if line.low is None else line.low
        high = nothing if line.high is None else line.high
        for step, mean, *ends in zip(line.env_steps, line.mean, low, high, strict=True):
            numbers = [None if end is None else round(float(end), 4) for end in (mean, *ends)]
            yield {
                "task": task,
                "algorithm": label,
                "env_step": round(float(step)),
                **dict(zip(("mean", "low", "high"), numbers, strict=True)),
            }


def _costs(runs: Sequence[RecordedRun]) -> dict[str, float | None]:
    """Mean memory and time of runs; None where one of them does not tell."""

    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    buffer_mb = mean([run.buffer_mb for run in runs])
    return {
        "replay_bytes": None if buffer_mb is None else round(buffer_mb * MB),
        "peak_rss_mb": mean([run.peak_rss_mb for run in runs]),
        "train_seconds": mean([run.train_seconds for run in runs]),
    }


def _page(
    analysis: Analysis,
    left_out: Sequence[LeftOut],
    title: str,
    command: str,
    figures: Sequence[str],
) -> list[str]:
    runs = [run for group in analysis.groups.values() for run in group]
    kind = {"train": "Training", "eval": "Evaluation"}[analysis.options.metric]
    lines = [
        f"# {title}",
        "",
        f"{kind} returns of {_count(len(runs), 'run')}: {', '.join(analysis.labels)} on "
        f"{', '.join(analysis.tasks)}. Intervals are 95% bootstrap intervals over runs "
        f"({analysis.options.repetitions:,} resamples).",
        "",
        *_return_section(analysis),
    ]
    if analysis.aggregates:
        lines += _aggregate_section(analysis)
    elif len(analysis.tasks) > 1:
        lines += ["No task was run by every algorithm: nothing is aggregated over tasks.", ""]
    if analysis.improvements:
        lines += _improvement_section(analysis)
    lines += _cost_section(analysis, figures)
    if left_out:
        lines += ["## Left out", "", *(f"- `{run.name}`: {run.reason}" for run in left_out), ""]
    names = [f"`{name}.csv`" for name, rows in tables(analysis).items() if rows]
    lines += [
        "## Made by",
        "",
        f"    {command}",
        "",
        f"Tables: {', '.join(names)}. Each figure is here as SVG, too. "
        f"medqn-tianshou {version('medqn-tianshou')}, rliable {version('rliable')}, "
        f"numpy {version('numpy')}; bootstrap seed {analysis.options.seed}.",
    ]
    return lines


def _return_section(analysis: Analysis) -> list[str]:
    lines = ["## Returns by task", ""]
    for task in analysis.tasks:
        lines += [f"| {task} | mean [95%] | median | lowest | highest | runs |", "|---" * 6 + "|"]
        for label in analysis.of_task(task):
            values = analysis.finals[task, label]
            mean = _write(analysis.final_mean(task, label), _digits(values))
            others = [f"{f(values):,.{_digits(values)}f}" for f in (np.median, np.min, np.max)]
            lines.append(f"| {label} | {mean} | {' | '.join(others)} | {len(values)} |")
        lines += ["", *_protocol(analysis, [task]), ""]
    smoothing = (
        f"smoothed exponentially with weight {analysis.smoothing:g} of the past on a grid of 400 "
        "points (the tables are not)"
        if analysis.smoothing
        else "not smoothed"
    )
    lines += _picture("learning_curves", f"Mean over runs, {smoothing}; shaded is its 95% interval")
    return [*lines, *_protocol(analysis, analysis.tasks), ""]


def _aggregate_section(analysis: Analysis) -> list[str]:
    tasks = analysis.shared_tasks
    lines = [
        "## Over tasks",
        "",
        f"| | {' | '.join(AGGREGATES)} |",
        "|---" * (1 + len(AGGREGATES)) + "|",
        *(
            f"| {label} | {' | '.join(_write(found[name], 2) for name in AGGREGATES)} |"
            for label, found in analysis.aggregates.items()
        ),
        "",
        f"Of normalised final returns on {', '.join(tasks)}. IQM: mean of the middle half of all "
        "runs. Mean and median: of the tasks' means. Optimality gap: how far scores stay below 1 "
        "on average; lower is better. Each task counts the same, however many runs it has; "
        "intervals resample the runs of each task by themselves (rliable's stratified bootstrap).",
        "",
        "| task | 0 is | 1 is | namely |",
        "|---|---|---|---|",
    ]
    for task in tasks:
        scale = analysis.scales[task]
        if scale is not None:
            lines.append(f"| {task} | {scale.low:,g} | {scale.high:,g} | {scale.reason} |")
    reasons = " ".join(scale.reason for scale in analysis.scales.values() if scale)
    lines.append("")
    if "lowest" in reasons:
        lines += [
            "Scores between the lowest and the highest run compare within this report only.",
            "",
        ]
    if "human" in reasons:
        lines += [f"Random and human player: {load_settings('atari_scores')['source']}.", ""]
    missing = [task for task in analysis.tasks if task not in tasks]
    if missing:
        lines += [f"Not every algorithm, or no difference: {', '.join(missing)} is not in it.", ""]
    lines += _picture("aggregates", "Aggregates over tasks with 95% intervals")
    return [*lines, *_protocol(analysis, tasks), ""]


def _improvement_section(analysis: Analysis) -> list[str]:
    lines = [
        "## Probability of improvement",
        "",
        "| | probability [95%] | tasks |",
        "|---|---|---|",
    ]
    for pair in analysis.improvements:
        estimate = _write(pair.estimate, 2)
        tasks = ", ".join(pair.tasks)
        lines.append(f"| {pair.label} ends above {pair.other} | {estimate} | {tasks} |")
    lines += [
        "",
        "Share of pairs of runs, one of each, in which the first has the higher final return; ties "
        "count half; mean over tasks. 0.5 is no difference.",
        "",
        *_picture("improvement", "Probability of improvement with 95% intervals"),
    ]
    tasks = list(dict.fromkeys(task for pair in analysis.improvements for task in pair.tasks))
    return [*lines, *_protocol(analysis, tasks), ""]


def _cost_section(analysis: Analysis, figures: Sequence[str]) -> list[str]:
    lines = [
        "## Return against memory and time",
        "",
        "| task | | mean return [95%] | replay | peak RSS | training time |",
        "|---" * 6 + "|",
    ]
    for (task, label), runs in analysis.groups.items():
        costs = _costs(runs)
        replay, rss, seconds = costs.values()
        mean = _write(analysis.final_mean(task, label), _digits(analysis.finals[task, label]))
        lines.append(
            f"| {task} | {label} | {mean} "
            f"| {'not told' if replay is None else format_bytes(round(replay))} "
            f"| {'not told' if rss is None else format_bytes(round(rss * MB))} "
            f"| {'not told' if seconds is None else _duration(seconds)} |"
        )
    machines = sorted({run.cpu for runs in analysis.groups.values() for run in runs})
    lines += [
        "",
        "Means over runs. Replay is the buffer at the end of the run. Peak RSS is of the whole "
        "process: where replay is small, it is that of the libraries. Training time leaves out "
        "warm-up and evaluation; it compares only where runs had the same machine to themselves "
        f"(here: {', '.join(machines)}).",
        "",
    ]
    captions = {
        "return_replay": "Final return against the bytes of replay",
        "return_rss": "Final return against the process's peak memory",
        "return_time": "Final return against training time",
    }
    for name, caption in captions.items():
        if name in figures:
            lines += _picture(name, caption)
    return [*lines, *_protocol(analysis, analysis.tasks), ""]


def _picture(name: str, caption: str) -> list[str]:
    return [f"![{caption}]({name}.png)", "", f"*{caption}.*", ""]


def _protocol(analysis: Analysis, tasks: Sequence[str]) -> list[str]:
    """State the protocol below a table or a figure."""
    return [f"*{line}*  " for line in protocol_lines(analysis, tasks)]


def _write(estimate: Estimate, digits: int) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:,.{digits}f}"
    low, high = (f"{end:,.{digits}f}" for end in (estimate.low, estimate.high))
    return f"{estimate.value:,.{digits}f} [{low}, {high}]"


def _digits(values: np.ndarray[Any, Any]) -> int:
    """Decimals that tell something of values of this size."""
    return 2 if np.abs(values).max() < 10 else 1 if np.abs(values).max() < 10_000 else 0


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
