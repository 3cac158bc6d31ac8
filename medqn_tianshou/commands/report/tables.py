"""The tables of a report, as rows with a name for each column; tables of Markdown and CSV."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from medqn_tianshou.commands.report.analysis import Analysis
from medqn_tianshou.commands.report.curves import mean_and_error
from medqn_tianshou.commands.report.runs import RecordedRun
from medqn_tianshou.commands.report.statistics import AGGREGATES
from medqn_tianshou.training.memory import MB

Row = dict[str, Any]


def tables(analysis: Analysis) -> dict[str, list[Row]]:
    """Return all tables of a report that have rows, by name."""
    found = {
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
    return {name: rows for name, rows in found.items() if rows}


_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;", "\n": " ", "\r": " "}
)


def escape(text: str) -> str:
    """Escape a name from an untrusted file for Markdown: no HTML, cells, code, links."""
    return text.translate(_ESCAPES).replace("](", "&#93;(")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a table; return its lines and an empty one."""
    lines = [f"| {' | '.join(map(escape, cells))} |" for cells in (header, *rows)]
    return [lines[0], "|---" * len(header) + "|", *lines[1:], ""]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write a table of at least one row; missing values are empty."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _run_rows(analysis: Analysis) -> Iterator[Row]:
    for (task, label), runs in analysis.groups.items():
        returns, scores = analysis.finals[task, label], analysis.scores(task, label)
        released = analysis.finals_100.get((task, label), [None] * len(runs))
        for run, value, last_100, score in zip(runs, returns, released, scores, strict=True):
            yield {
                "task": task,
                "algorithm": label,
                "seed": run.seed,
                "status": run.status,
                "metric": analysis.options.metric,
                "window": run.window(analysis.options.metric, analysis.options.window),
                "final_return": float(value),
                "last_100_return": last_100,
                "score": _known(score),
                "env_steps": run.env_steps,
                **mean_costs([run]),
                "cpu": run.cpu,
                "run": run.name,
            }


def _return_rows(analysis: Analysis) -> Iterator[Row]:
    for (task, label), runs in analysis.groups.items():
        returns = analysis.finals[task, label]
        mean = analysis.final_mean(task, label)
        released = analysis.finals_100.get((task, label))
        last_100, error = (None, None) if released is None else mean_and_error(released, ddof=0)
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
            "mean_last_100": last_100,
            "standard_error_last_100_ddof_0": error,
            "mean_score": _known(analysis.scores(task, label).mean()),
            **mean_costs(runs),
        }


def _curve_rows(analysis: Analysis) -> Iterator[Row]:
    for task, label in analysis.groups:
        line = analysis.line(task, label)
        name = "median" if analysis.is_atari(task) else "mean"
        columns = {"return": line.value, "low": line.low, "high": line.high}
        for index, step in enumerate(line.env_steps):
            yield (
                {"task": task, "algorithm": label, "env_step": round(float(step))}
                | {
                    key: None if values is None else round(float(values[index]), 4)
                    for key, values in columns.items()
                }
                | {"statistic": name}
            )


def _known(number: float) -> float | None:
    return None if np.isnan(number) else float(number)


def mean_costs(runs: Sequence[RecordedRun]) -> dict[str, float | None]:
    """Return mean memory and time of runs; None where one of them has no value."""

    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    buffer_mb = mean([run.buffer_mb for run in runs])
    return {
        "replay_bytes": None if buffer_mb is None else round(buffer_mb * MB),
        "peak_rss_mb": mean([run.peak_rss_mb for run in runs]),
        "train_seconds": mean([run.train_seconds for run in runs]),
    }
