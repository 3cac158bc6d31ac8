"""What our own runs say about a claim of the paper: the runs, their returns, and a verdict.

docs/results/comparisons.md has the rules. The probabilities are those of `medqn report`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.commands.report.published import published_marks, score_at
from medqn_tianshou.commands.report.runs import RecordedRun, find_runs, read_runs
from medqn_tianshou.commands.report.statistics import Estimate, improvement
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
Finals = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Pair:
    """Whether the runs of one line end above, or as high as, those of another."""

    relation: str
    verdict: str
    probability: Estimate


@dataclass(frozen=True)
class Comparison:
    """A claim of the paper next to our own runs."""

    claim: dict[str, Any]
    verdict: str
    page: str
    """The folder of docs/results with the runs."""
    seeds: int = 0
    """How many are planned for each line; 0 if the claim is not about runs."""
    line_count: int = 1
    lines: Lines = field(default_factory=dict)
    finals: Finals = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    is_complete: bool = True

    @property
    def runs(self) -> list[RecordedRun]:
        """All runs of the claim."""
        return [run for line in self.lines.values() for run in line]


def compare(claim: Any, studies: Any) -> Comparison:
    """Compare the runs of a claim.

    :param claim: an entry of claims.toml.
    :param studies: those of campaign.toml, by name.
    """
    if "verdict" in claim:
        return Comparison(claim, claim["verdict"], claim["page"])
    if "reproduce" in claim:
        seeds, page = int(claim["seeds"]), claim["reproduce"]
        lines, line_count = _lines_of_figure(page)
    else:
        study, page = studies[claim["study"]], claim["study"]
        seeds = int(study["seeds"])
        lines = _lines_of_study(page, runs_of(page), claim["task"])
        line_count = len(study["algorithms"]) * len(study.get("variant", [None]))
    if not lines:
        return Comparison(claim, "open", page, seeds, line_count, is_complete=False)
    finals = _final_returns(lines)
    complete = [len(values) for values in finals.values()] == [seeds] * line_count
    complete = complete and all(run.status == "finished" for of in lines.values() for run in of)
    pairs, verdict = _compare_pairs(claim, finals, complete=complete)
    return Comparison(claim, verdict, page, seeds, line_count, lines, finals, pairs, complete)


def runs_of(study: str) -> list[RecordedRun]:
    """Read the committed runs of a study."""
    runs, left_out = read_runs(find_runs(HERE / "results" / study))
    if left_out:
        raise RuntimeError(f"{left_out[0].name}: {left_out[0].reason}")
    return runs


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


def _key(task: str) -> str:
    return re.sub(r"^minatar/|-v\d+$|_", "", task.lower())


def _final_returns(lines: Lines) -> Finals:
    """Return the final returns of each line; on Atari, the scores at a published mark.

    The mark is the last one that a run of each line has reached.
    """
    end = _last_mark(lines) or min(run.env_steps for runs in lines.values() for run in runs)
    return {
        name: np.array([return_at(run, end) for run in runs if _reaches(run, end)])
        for name, runs in lines.items()
    }


def _reaches(run: RecordedRun, step: float) -> bool:
    return (run.last_evaluation if run.evaluations else run.env_steps) >= step


def return_at(run: RecordedRun, end: float) -> float:
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


def _compare_pairs(claim: Any, finals: Finals, *, complete: bool) -> tuple[list[Pair], str]:
    """Compare each pair of a claim, and sum up."""
    pairs, verdicts = [], []
    for kind, sign in (("not_below", "≥"), ("above", ">")):
        for better, worse in claim.get(kind, []):
            if complete and not {better, worse} <= finals.keys():
                raise RuntimeError(f"{claim['figure']}: {better} or {worse} is no line of its runs")
            first, second = (finals.get(name, ()) for name in (better, worse))
            verdict = "open"
            if len(first) > 1 and len(second) > 1:
                probability = improvement([first], [second], RESAMPLES, SEED)
                if min(len(first), len(second)) < LEAST_RUNS:
                    probability = Estimate(probability.value)
                verdict = _verdict(kind, probability)
                pairs.append(Pair(f"{better} {sign} {worse}", verdict, probability))
            verdicts.append(verdict)
    return pairs, _overall(verdicts) if complete else "open"


def _verdict(kind: str, probability: Estimate) -> str:
    if probability.low is None or probability.high is None:
        return {0.0: "disagrees", 1.0: "agrees"}.get(probability.value, "open")
    if probability.high < 0.5:
        return "disagrees"
    return "agrees" if probability.low > 0.5 - MARGIN * (kind == "not_below") else "open"


def _overall(verdicts: Sequence[str]) -> str:
    if "disagrees" in verdicts:
        return "disagrees in part" if "agrees" in verdicts else "disagrees"
    return "agrees" if set(verdicts) == {"agrees"} else "open"
