"""Writes docs/results/README.md: each claim of the paper next to the results of our own runs.

python campaign/page.py

The details go to docs/results/comparisons.md. `medqn report` writes the page of each study with
finished runs.
"""

import sys
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from compare import (
    DOCS,
    HERE,
    LEAST_RUNS,
    RESAMPLES,
    SEED,
    Comparison,
    Lines,
    compare,
    return_at,
    runs_of,
)  # fmt: skip
from numpy.typing import NDArray

from medqn_tianshou.commands.report.command import main as report
from medqn_tianshou.commands.report.published import published_marks, score_at
from medqn_tianshou.commands.report.runs import RecordedRun, find_runs, read_runs
from medqn_tianshou.commands.report.statistics import mean_interval

HEAD = """\
# Results

Each claim of the paper, and what our own runs say about it. A > B: A ends above B; A ≥ B: A ends as
high as B. [Comparisons](comparisons.md) has the rules, every pair and every score.

"""
COLUMNS = ("", "the paper", "our finding", "mean of final returns [95%] or (range)", "runs")
"""The interval needs ten runs; of fewer, the range is given."""
_NO_PARENTHESES = str.maketrans("", "", "()")


def main() -> int:
    """Write the reports of all studies and both pages."""
    claims = _load("claims.toml")["claim"]
    studies = {study["name"]: study for study in _load("campaign.toml")["study"]}
    runs = {name: runs_of(name) for name in studies}
    for name, of_study in runs.items():
        if of_study:
            folder = f"campaign/results/{name}"
            figures = [claim["figure"] for claim in claims if claim.get("study") == name]
            title = f"Our runs for {' and '.join(figures)}".translate(_NO_PARENTHESES)
            options = ["--out", f"docs/results/{name}", "--title", title]
            if any(run.status != "finished" for run in of_study):
                options.append("--unfinished")
            report([folder, *options], prog="medqn report")
    comparisons = [compare(claim, studies) for claim in claims]
    (DOCS / "README.md").write_text(HEAD + _table(COLUMNS, map(_row, comparisons)))
    everything = (HERE / "comparisons.md").read_text()
    for name, text in {
        "claims": "\n".join(map(_section, comparisons)),
        "repeated": _repeated([run for of_study in runs.values() for run in of_study]),
    }.items():
        everything = everything.replace(f"{{{name}}}\n", text)
    (DOCS / "comparisons.md").write_text(everything)
    return 0


def _load(name: str) -> Any:
    return tomllib.loads((HERE / name).read_text())


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(of: Comparison) -> list[str]:
    """Return the row of a claim on the page of results."""
    claim = of.claim
    anchor = claim["figure"].lower().replace(" ", "-").replace(",", "").translate(_NO_PARENTHESES)
    finding = f"[**{of.verdict}**](comparisons.md#{anchor}){_length(claim)}"
    details = claim.get("finding", _by_verdict(of))
    finding += f": {details}" if details else ""
    finals = [f"{name}: {_mean(values, short=True)}" for name, values in of.finals.items()]
    has_page = of.runs or not of.seeds
    name = f"[{claim['figure']}]({of.page}/README.md)" if has_page else claim["figure"]
    row = [name, claim["paper"], finding, "<br>".join(finals), _count(of)]
    return [_unbroken(cell) if i in (0, 3) else cell for i, cell in enumerate(row)]


def _by_verdict(of: Comparison) -> str:
    """List the pairs that agree and disagree, if the verdict on the claim does not say it."""
    texts = []
    for verdict in ("agrees", "disagrees"):
        pairs = [pair.relation for pair in of.pairs if pair.verdict == verdict]
        if pairs and verdict != of.verdict:
            texts.append(f"{verdict} on {' and '.join(pairs)}")
    return "; ".join(texts)


def _unbroken(cell: str) -> str:
    return cell.replace(" ", "&nbsp;")


def _section(of: Comparison) -> str:
    """Return all there is about a claim."""
    claim = of.claim
    text = f"## {claim['figure']}\n\nThe paper: {claim['paper']}.\n\n"
    text += f"Our runs: **{of.verdict}**{_length(claim)}"
    for key in ("finding", "detail"):
        text += f"{': ' if key == 'finding' else '. '}{claim[key]}" if key in claim else ""
    text += f" ({_count(of)}).\n" if of.seeds else ".\n"
    if of.pairs:
        text += "\n" + _table(
            ("pair", "", "P"),
            ((pair.relation, pair.verdict, _probability(pair.probability)) for pair in of.pairs),
        )
    if of.finals:
        text += "\n" + _table(
            ("", "runs", "final return (Atari: score at a mark)", "each run"),
            (
                (name, str(len(values)), _mean(values), "; ".join(f"{v:,.1f}" for v in values))
                for name, values in of.finals.items()
            ),
        )
    published = _beside_published(of.lines)
    if published:
        text += "\n" + _table(("", "at step", "our median (runs)", "published median"), published)
    return text


def _length(claim: Any) -> str:
    return f" at {claim['length']} steps" if "length" in claim else ""


def _count(of: Comparison) -> str:
    if not of.seeds:
        return ""
    if of.is_complete:
        return f"{of.seeds} seeds each"
    lengths = [f"{run.env_steps:,}" for run in of.runs if run.status != "finished"]
    text = f"{len(of.runs)} of {of.seeds * of.line_count} so far"
    return text + (f", {len(lengths)} stopped at {' and '.join(lengths)} steps" if lengths else "")


def _probability(probability: Any) -> str:
    value, low, high = probability.value, probability.low, probability.high
    return f"{value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None else "")


def _mean(values: NDArray[Any], *, short: bool = False) -> str:
    mean = float(values.mean())
    digits = 0 if short and abs(mean) >= 100 else 1
    if len(values) == 1:
        return f"{mean:,.{digits}f}"
    if len(values) < LEAST_RUNS:
        low, high = values.min(), values.max()
        return f"{mean:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
    low, high = mean_interval(values, RESAMPLES, SEED) or (0, 0)
    return f"{mean:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def _beside_published(lines: Lines) -> list[tuple[str, ...]]:
    """Compare the scores with each published mark that a run has reached."""
    rows = []
    for name, runs in lines.items():
        for mark, *published in max(map(published_marks, runs), key=len):
            scores = [score_at(run, mark) for run in runs if run.last_evaluation >= mark]
            median, low, high = (f"{value:,.0f}" for value in published)
            ours = f"{np.median(scores):,.0f} ({len(scores)})"
            rows.append((name, f"{mark:,.0f}", ours, f"{median} [{low}, {high}]"))
    return rows


def _repeated(runs: Sequence[RecordedRun]) -> str:
    """Compare repeated runs with the first ones of the same task, algorithm and seed."""
    again, _ = read_runs(find_runs(HERE / "repeated"))
    table = ""
    for task, algorithm in sorted({(run.task, run.algorithm) for run in again}, reverse=True):
        new, old = (
            sorted(
                (run for run in side if (run.task, run.algorithm) == (task, algorithm)),
                key=lambda run: run.seed,
            )
            for side in (again, runs)
        )
        old = [run for run in old if run.seed in {run.seed for run in new}]
        end = min(run.env_steps for run in [*old, *new])
        cells = [
            f"{_mean(np.array([return_at(run, end) for run in side]))}, {side[0].cpu}"
            for side in (old, new)
        ]
        table += f"| {task}, {algorithm} | {len(new)} | {' | '.join(cells)} |\n"
    return table


if __name__ == "__main__":
    sys.exit(main())
