"""Writes docs/results/README.md: each claim of the paper next to the results of our own runs.

python campaign/page.py

`medqn report` writes the page of each study with finished runs. The probabilities here are its
probabilities of improvement, with 95% bootstrap intervals.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.commands.report.command import main as report
from medqn_tianshou.commands.report.published import published_marks, score_at
from medqn_tianshou.commands.report.runs import RecordedRun, find_runs, read_runs
from medqn_tianshou.commands.report.statistics import Estimate, improvement, mean_interval
from medqn_tianshou.commands.reproduce import lines_of
from medqn_tianshou.commands.sweep.file import read_sweep
from medqn_tianshou.experiments.figures import load_figures

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs/results"
RESAMPLES, SEED = 2000, 0
ORDER = ("MeDQN(U)", "MeDQN(R)", "DQN", "DQN(S)")
Lines = dict[str, list[RecordedRun]]
"""Runs by what they compare: an algorithm, or a variant of it."""
HEAD = """\
# Results

This page compares the paper's claims with our own runs. `python campaign/page.py` writes it from
[`campaign/results`](../../campaign/results), which contains the runs of
[`campaign.toml`](../../campaign/campaign.toml).

- `P(A > B)` is the probability that a run of A ends above a run of B, with its 95% interval.
- For a claim that A ends above B, our runs **agree** if the whole interval lies above 0.5, and
  **disagree** if it lies below 0.5. For a claim that A ends as high as B, they agree unless the
  whole interval lies below 0.5: a wide interval is weak evidence. All other results are **open**,
  as are claims with unfinished runs, which are compared at the last step that all of them reached,
  or on Atari at the last published mark that runs of both algorithms reached.
- The published scores of Atari games are medians over 5 seeds, with the lowest and the highest
  score. The score of a run at a mark is its mean over the evaluations of the 250,000 steps before
  it, in the paper's runs and in ours.
- The same seed gives the same run only on the same kind of CPU: see
  [below](#the-same-seeds-on-another-cpu).

| | the paper | our runs | final return: mean [95%] | runs | |
|---|---|---|---|---|---|
"""


REPEATED = """
## The same seeds on another CPU

These runs were repeated with the same seeds on another kind of CPU
([`campaign/repeated`](../../campaign/repeated)). Rounding differs, and so does every run after a
while. The columns are final returns, means with 95% intervals; of runs that were stopped, the
scores at the last published mark that both have reached. The table above has the first column
alone. NameThisGame with seed 0 was also begun on an AMD EPYC and stopped at about 502,000 steps,
with 2,082 (MeDQN(R)) and 2,441 (DQN) at the mark of 500,000; the files of these two runs were not
kept.

| | runs | above | repeated |
|---|---|---|---|
"""


def main() -> int:
    """Write the reports of all studies and the page of all claims."""
    studies = {study["name"]: study for study in _load("campaign.toml")["study"]}
    runs = {name: _runs_of(name) for name in studies}
    for name, of_study in runs.items():
        if of_study:
            folder = f"campaign/results/{name}"
            options = ["--out", f"docs/results/{name}", "--title", f"Study {name}"]
            if any(run.status != "finished" for run in of_study):
                options.append("--unfinished")
            report([folder, *options], prog="medqn report")
    rows = [_row(claim, studies, runs) for claim in _load("claims.toml")["claim"]]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    (DOCS / "README.md").write_text(
        HEAD + table + _repeated([run for of_study in runs.values() for run in of_study])
    )
    return 0


def _repeated(runs: Sequence[RecordedRun]) -> str:
    """Compare repeated runs with the first ones of the same task, algorithm and seed."""
    again, _ = read_runs(find_runs(HERE / "repeated"))
    table = ""
    for task, algorithm in sorted({(run.task, run.algorithm) for run in again}, reverse=True):
        new = [run for run in again if (run.task, run.algorithm) == (task, algorithm)]
        seeds = {run.seed for run in new}
        old = [r for r in runs if (r.task, r.algorithm) == (task, algorithm) and r.seed in seeds]
        end = min(run.env_steps for run in [*old, *new])
        cells = [
            f"{_mean(np.array([_return_at(run, end) for run in side]))}, {side[0].cpu}"
            for side in (old, new)
        ]
        table += f"| {task}, {algorithm} | {len(new)} | {' | '.join(cells)} |\n"
    return REPEATED + table


def _load(name: str) -> Any:
    return tomllib.loads((HERE / name).read_text())


def _runs_of(study: str) -> list[RecordedRun]:
    runs, left_out = read_runs(find_runs(HERE / "results" / study))
    if left_out:
        raise RuntimeError(f"{left_out[0].name}: {left_out[0].reason}")
    return runs


def _row(claim: Any, studies: Any, runs: dict[str, list[RecordedRun]]) -> list[str]:
    figure, paper = claim["figure"], claim["paper"]
    if "finding" in claim:
        return [figure, paper, claim["finding"], "", "", f"[page]({claim['page']}/README.md)"]
    if "reproduce" in claim:
        planned, page = int(claim["seeds"]), claim["reproduce"]
        lines, line_count = _lines_of_figure(page)
    else:
        study, page = studies[claim["study"]], claim["study"]
        planned = int(study["seeds"])
        lines = _lines_of_study(page, runs[page], claim["task"])
        line_count = len(study["algorithms"]) * len(study.get("variant", [None]))
    of_claim = [run for line in lines.values() for run in line]
    if not of_claim:
        return [figure, paper, "open: no finished runs", "", "0", ""]
    finals = _final_returns(lines)
    complete = [len(values) for values in finals.values()] == [planned] * line_count
    complete = complete and all(run.status == "finished" for run in of_claim)
    returns = [f"{name} {_mean(values)}" for name, values in finals.items()]
    return [
        figure,
        paper,
        _finding(claim, finals, complete=complete),
        "<br>".join([*returns, *_beside_published(lines)]),
        f"{planned} seeds each" if complete else _so_far(of_claim, planned),
        f"[page]({page}/README.md)",
    ]


def _lines_of_study(study: str, runs: Sequence[RecordedRun], task: str) -> Lines:
    """Sort the runs of a task by algorithm and variant; a variant has a folder of its own."""
    lines: Lines = {}
    for run in sorted(runs, key=lambda run: (ORDER.index(run.algorithm), run.seed)):
        if _key(run.task) == _key(task):
            variants = Path(run.name).relative_to(HERE / "results" / study).parts[:-3]
            label = " ".join([run.algorithm, *variants]).replace("-", " ")
            lines.setdefault(label, []).append(run)
    return lines


def _lines_of_figure(name: str) -> tuple[Lines, int]:
    """Read the runs of `medqn reproduce` by line, and count the lines of the figure."""
    planned = lines_of(read_sweep(load_figures()[name].path))
    lines: Lines = {}
    for line in planned:
        files = sorted((DOCS / name / "raw").glob(f"{line.slug}_seed*.json"))
        if files:
            lines[line.label] = sorted(read_runs(files)[0], key=lambda run: run.seed)
    return lines, len(planned)


def _so_far(runs: Sequence[RecordedRun], planned: int) -> str:
    lengths = [f"{run.env_steps:,}" for run in runs if run.status != "finished"]
    stopped = f" ({len(lengths)} stopped, at {' and '.join(lengths)} steps)" if lengths else ""
    return f"{len(runs)} so far{stopped}; planned: {planned} seeds each"


def _final_returns(lines: Lines) -> dict[str, NDArray[Any]]:
    """Return the final returns of each line; on Atari, the scores at a published mark.

    The mark is the last one that a run of each line has reached.
    """
    end = _last_mark(lines) or min(run.env_steps for runs in lines.values() for run in runs)
    return {
        name: np.array([_return_at(run, end) for run in runs if run.env_steps >= end])
        for name, runs in lines.items()
    }


def _return_at(run: RecordedRun, end: float) -> float:
    """Return a run's final return if it had ended there; on Atari, its score at the last mark."""
    marks = published_marks(run)
    marks = marks[marks[:, 0] <= end]
    if len(marks):
        return score_at(run, marks[-1, 0])
    return float(run.curve("train", None).until(int(end)).value[-1])


def _last_mark(lines: Lines) -> float:
    """Return the last published mark that a run of each line has reached; 0 without one."""
    return min(
        max(float(max(published_marks(run)[:, 0], default=0.0)) for run in runs)
        for runs in lines.values()
    )


def _beside_published(lines: Lines) -> list[str]:
    """Compare the scores with each published mark that a run has reached."""
    texts = []
    for name, runs in lines.items():
        for mark, *published in max(map(published_marks, runs), key=len):
            scores = [score_at(run, mark) for run in runs if run.env_steps >= mark]
            median, low, high = (f"{value:,.0f}" for value in published)
            texts.append(
                f"{name} at {mark:,.0f}: {np.median(scores):,.0f} "
                f"({len(scores)} run{'s' * (len(scores) > 1)}); published {median} [{low}, {high}]"
            )
    return texts


def _key(task: str) -> str:
    return re.sub(r"^minatar/|-v\d+$|_", "", task.lower())


def _finding(claim: Any, finals: dict[str, NDArray[Any]], *, complete: bool) -> str:
    verdicts, texts = [], []
    for kind in ("not_below", "above"):
        for better, worse in claim.get(kind, []):
            if min(len(finals.get(name, ())) for name in (better, worse)) > 1:
                pair = improvement([finals[better]], [finals[worse]], RESAMPLES, SEED)
                verdicts.append(_verdict(kind, pair))
                texts.append(
                    f"P({better} > {worse}) = {pair.value:.2f} [{pair.low:.2f}, {pair.high:.2f}]"
                )
    word = "open" if "open" in verdicts or not verdicts else "agrees"
    word = "disagrees" if "disagrees" in verdicts else word
    if not complete:
        word = f"open (so far: {word})" if word != "open" else word
    return "<br>".join([f"**{word}**", *texts])


def _verdict(kind: str, pair: Estimate) -> str:
    if pair.low is None or pair.high is None:
        return "open"
    if pair.high < 0.5:
        return "disagrees"
    return "agrees" if kind == "not_below" or pair.low > 0.5 else "open"


def _mean(values: NDArray[Any]) -> str:
    interval = mean_interval(values, RESAMPLES, SEED)
    mean = f"{values.mean():,.1f}"
    return mean if interval is None else f"{mean} [{interval[0]:,.1f}, {interval[1]:,.1f}]"


if __name__ == "__main__":
    sys.exit(main())
