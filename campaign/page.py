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
LEAST_RUNS = 10
"""Bootstrap intervals over fewer runs are too narrow (5 runs: 90% instead of 95%; 3 runs: 73%)."""
MARGIN = 0.2
"""For "as high as": how far below 0.5 the probability of improvement may lie."""
ORDER = ("MeDQN(U)", "MeDQN(R)", "DQN", "DQN(S)")
Lines = dict[str, list[RecordedRun]]
"""Runs by what they compare: an algorithm, or a variant of it."""
HEAD = """\
# Results

This page compares the paper's claims with our own runs. `python campaign/page.py` writes it from
[`campaign/results`](../../campaign/results), which contains the runs of
[`campaign.toml`](../../campaign/campaign.toml).

- P is the share of pairs in which a run of A ends above a run of B, with its 95% interval. From
  fewer than ten runs, no interval is given: it would be too narrow.
- **A > B**: A ends above B. Our runs agree if the interval lies above 0.5, and disagree if it
  lies below 0.5. **A ≥ B**: A ends as high as B. They disagree if the interval lies below 0.5;
  otherwise they agree if it lies above 0.3, a margin of our choice. With fewer than ten runs, they
  agree only if A ends above B in all pairs of runs, and disagree only if it does in none. Without
  a difference, each of the two has a chance of 1 in 20 with 3 runs each, and of 1 in 252 with 5.
  All else is open.
- A whole claim **agrees** if all of its pairs agree. It **disagrees** if at least one pair
  disagrees and none agrees, and **disagrees in part** if some disagree and some agree. Otherwise
  it is **open**, also while runs are missing: until then, runs are compared at the last step that
  all of them reached, or on Atari at the last published mark that runs of both algorithms reached.
- These rules were written after the runs of Figure 4(a) and 4(b), the first three of NameThisGame
  and a few of MinAtar; the least number of runs for an interval was raised from five to ten after
  those of Figure 3.
- Our runs of MinAtar have 2 million of the paper's 5 million steps (Seaquest: 10 million), and
  those of NameThisGame 1.5 of 12.5 million. Lambda rises as in the paper's runs, so our runs
  correspond to the beginnings of the paper's.
- NameThisGame was chosen because the published difference is large and early there. Published at
  1.5 million steps, MeDQN(R) against DQN with as many transitions: Phoenix 4,107 and 3,487, Qbert
  1,322 and 1,352, DoubleDunk -1.7 and -1.7, BattleZone 6,067 and 10,067.
- The published scores of Atari games are medians over 5 seeds, with the lowest and the highest
  score; ours next to them are medians as well. The score of a run at a mark is its mean over the
  evaluations of the 250,000 steps before it, in the paper's runs and in ours. Training episodes
  may differ after [a lost life](../fidelity.md#atari).
- All runs of Figure 4(a) and 4(b) were made at one commit; 22 of them record the version of
  another clone, 0.2.0.
- The same seed gives the same run only on the same kind of CPU: see
  [below](#the-same-seeds-on-another-cpu).

| | the paper | our runs | final return (Atari: score at a mark): mean [95%] | runs | |
|---|---|---|---|---|---|
"""


REPEATED = """
## The same seeds on another CPU

These runs were repeated with the same seeds on another kind of CPU
([`campaign/repeated`](../../campaign/repeated)). Rounding differs, and so does every run after a
while. The columns are final returns, means with 95% intervals; of runs that were stopped, the
scores at the last published mark that both have reached. The table above has the first column
alone. NameThisGame: the Intel machine of MeDQN(R), seed 0, began DQN, seed 0, as well, but was gone
when that run had 1.03 million steps; it was run again from the start on the AMD machine, and this
second run is in the table above. Both seeds 0 had been begun on an AMD EPYC before, and stopped at
about 502,000 steps, with 2,082 (MeDQN(R)) and 2,441 (DQN) at the mark of 500,000; the files of
these two runs were not kept.

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
        new.sort(key=lambda run: run.seed)
        old.sort(key=lambda run: run.seed)
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
        name: np.array([_return_at(run, end) for run in runs if _reaches(run, end)])
        for name, runs in lines.items()
    }


def _reaches(run: RecordedRun, step: float) -> bool:
    return (run.last_evaluation if run.evaluations else run.env_steps) >= step


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
            scores = [score_at(run, mark) for run in runs if run.last_evaluation >= mark]
            count = f"{len(scores)} run{'s' * (len(scores) > 1)}"
            median, low, high = (f"{value:,.0f}" for value in published)
            texts.append(
                f"{name} at {mark:,.0f}: median {np.median(scores):,.0f} "
                f"({count}); published median {median} [{low}, {high}]"
            )
    return texts


def _key(task: str) -> str:
    return re.sub(r"^minatar/|-v\d+$|_", "", task.lower())


def _finding(claim: Any, finals: dict[str, NDArray[Any]], *, complete: bool) -> str:
    verdicts, texts = [], []
    for kind, sign in (("not_below", "≥"), ("above", ">")):
        for better, worse in claim.get(kind, []):
            if complete and not {better, worse} <= finals.keys():
                raise RuntimeError(f"{claim['figure']}: {better} or {worse} is no line of its runs")
            first, second = (finals.get(name, ()) for name in (better, worse))
            verdict = "open"
            if len(first) > 1 and len(second) > 1:
                pair = improvement([first], [second], RESAMPLES, SEED)
                enough = min(len(first), len(second)) >= LEAST_RUNS
                verdict = _verdict(kind, pair, enough=enough)
                interval = f" [{pair.low:.2f}, {pair.high:.2f}]" if enough else ""
                texts.append(f"{better} {sign} {worse}: {verdict}, P = {pair.value:.2f}{interval}")
            verdicts.append(verdict)
    word = _overall(verdicts) if complete else "open"
    length = f" at {claim['length']} steps" if "length" in claim else ""
    return "<br>".join([f"**{word}**{length}", *texts, *filter(None, [claim.get("caveat")])])


def _verdict(kind: str, pair: Estimate, *, enough: bool) -> str:
    if not enough or pair.low is None or pair.high is None:
        return {0.0: "disagrees", 1.0: "agrees"}.get(pair.value, "open")
    if pair.high < 0.5:
        return "disagrees"
    return "agrees" if pair.low > 0.5 - MARGIN * (kind == "not_below") else "open"


def _overall(verdicts: Sequence[str]) -> str:
    if "disagrees" in verdicts:
        return "disagrees in part" if "agrees" in verdicts else "disagrees"
    return "agrees" if set(verdicts) == {"agrees"} else "open"


def _mean(values: NDArray[Any]) -> str:
    mean = f"{values.mean():,.1f}"
    if len(values) < LEAST_RUNS:
        return mean + (f" ({'; '.join(f'{v:,.1f}' for v in values)})" if len(values) > 1 else "")
    low, high = mean_interval(values, RESAMPLES, SEED) or (0, 0)
    return f"{mean} [{low:,.1f}, {high:,.1f}]"


if __name__ == "__main__":
    sys.exit(main())
