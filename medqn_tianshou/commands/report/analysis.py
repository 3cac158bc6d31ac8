"""All numbers of a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from medqn_tianshou.commands.report.curves import (
    GRID_POINTS,
    SMOOTHING_TEXT,
    Array,
    Curve,
    final_returns,
    smooth,
)
from medqn_tianshou.commands.report.groups import Groups, labels_of
from medqn_tianshou.commands.report.protocol import Protocol, describe_task
from medqn_tianshou.commands.report.published import MARK_STEPS, score_curve
from medqn_tianshou.commands.report.runs import LeftOut, Metric, RecordedRun, UnusableRunError
from medqn_tianshou.commands.report.statistics import (
    Estimate,
    Scale,
    aggregate,
    improvement,
    mean_interval,
    scale_of,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for; repetitions and seed are the bootstrap's."""

    metric: Metric
    window: int | None = None
    """Episodes or evaluations that a return averages over; None is the runs' own."""
    repetitions: int = 2000
    seed: int = 0
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Scales of tasks that the user gave."""


@dataclass(frozen=True)
class Line:
    """A learning curve over runs, and its interval if there is more than one run."""

    env_steps: Array
    value: Array
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True)
class Improvement:
    """How probably a run of one algorithm ends above a run of another."""

    label: str
    other: str
    tasks: tuple[str, ...]
    estimate: Estimate


def read_curves(
    runs: Sequence[RecordedRun], options: Options
) -> tuple[dict[str, Curve], list[LeftOut]]:
    """Read the returns of runs by the runs' names, and list the runs without returns."""
    curves, left_out = {}, []
    for run in runs:
        try:
            curves[run.name] = run.curve(options.metric, options.window)
        except UnusableRunError as error:
            left_out.append(LeftOut(run.name, str(error)))
    return curves, left_out


class Analysis:
    """The numbers of a report. Those that need rliable are computed when they are first read.

    :param curves: the returns by the runs' names.
    :param labels: the order of the labels; None sorts them by algorithm.
    """

    def __init__(
        self,
        groups: Groups,
        curves: Mapping[str, Curve],
        options: Options,
        *,
        labels: Sequence[str] | None = None,
    ) -> None:
        self.groups = groups
        self.options = options
        self.tasks = list(dict.fromkeys(task for task, _ in groups))
        self.labels = labels_of(groups) if labels is None else list(labels)
        self.curves = {key: [curves[run.name] for run in runs] for key, runs in groups.items()}
        self.common_step = {task: self._common_step(task) for task in self.tasks}
        """The environment step at which the runs of a task are compared."""
        compared = {
            (task, label): [curve.until(self.common_step[task]) for curve in of_key]
            for (task, label), of_key in self.curves.items()
        }
        self.finals = {key: final_returns(of_key) for key, of_key in compared.items()}
        self.finals_100 = {
            key: np.array([curve.last_100 for curve in of_key], float)
            for key, of_key in compared.items()
            if options.metric == "train"
        }
        """Means of the last 100 training episodes, as the released analysis has them."""
        self.protocols: dict[str, Protocol] = {
            task: describe_task(
                task, self.of_task(task), options.metric, options.window, self.common_step[task]
            )
            for task in self.tasks
        }
        self.scales: dict[str, Scale | None] = {
            task: scale_of(
                task,
                options.metric,
                np.concatenate([self.finals[task, label] for label in self.of_task(task)]),
                options.bounds,
            )
            for task in self.tasks
        }
        self.shared_tasks = [
            task
            for task in self.tasks
            if self.scales[task] is not None and len(self.of_task(task)) == len(self.labels)
        ]
        """Tasks that every algorithm has run: only over these can all be compared."""

    def of_task(self, task: str) -> dict[str, list[RecordedRun]]:
        """Return the runs of a task by label."""
        return {label: runs for (of, label), runs in self.groups.items() if of == task}

    def _common_step(self, task: str) -> int:
        """Return the length of a task's shortest run, or a later step to which all have returns."""
        curves = [curve for (of, _), found in self.curves.items() if of == task for curve in found]
        first_returns = max(int(curve.env_step[0]) for curve in curves)
        return max(min(curve.env_steps for curve in curves), first_returns)

    def scores(self, task: str, label: str) -> Array:
        """Return the normalised final returns of a group."""
        scale = self.scales[task]
        returns = self.finals[task, label]
        return np.full_like(returns, np.nan) if scale is None else scale(returns)

    def final_mean(self, task: str, label: str) -> Estimate:
        """Return the mean final return of a group."""
        returns = self.finals[task, label]
        interval = mean_interval(returns, self.options.repetitions, self.options.seed)
        mean = float(returns.mean())
        return Estimate(mean) if interval is None else Estimate(mean, *map(float, interval))

    def is_atari(self, task: str) -> bool:
        """Whether the task's curves are drawn as the published ones of Atari."""
        runs = next(iter(self.of_task(task).values()))
        return self.options.metric == "eval" and runs[0].family == "atari"

    @property
    def curve_text(self) -> str:
        """What learning curves show."""
        smoothing = SMOOTHING_TEXT
        if self.options.metric == "eval":
            smoothing = "evaluations joined by straight lines, not smoothed"
        texts = []
        if not all(map(self.is_atari, self.tasks)):
            texts.append(f"Lines: mean over runs, {smoothing}. Shaded: its 95% bootstrap interval.")
        if any(map(self.is_atari, self.tasks)):
            texts.append(
                f"Lines{' (Atari)' * bool(texts)}: mean of the evaluations of the "
                f"{MARK_STEPS:,} steps before, then median over runs. Shaded: lowest to highest "
                "run. Open marks: published, where there are any for game, algorithm and buffer "
                "size (the same mean, then median of 5 seeds; bars: lowest to highest)."
            )
        return " ".join(texts)

    def line(self, task: str, label: str) -> Line:
        """Return the learning curve of a group."""
        curves = self.curves[task, label]
        # Up to where all runs got: a mean over fewer and fewer runs would jump.
        grid = np.linspace(0, min(curve.env_steps for curve in curves), GRID_POINTS)
        first = np.searchsorted(grid, min(curve.env_step[0] for curve in curves))
        grid = grid[min(first, GRID_POINTS - 2) :]  # the first return may come at the very end
        if self.is_atari(task):
            values = np.stack(
                [np.interp(grid, *score_curve(run)) for run in self.groups[task, label]]
            )
            ends = (values.min(axis=0), values.max(axis=0)) if len(values) > 1 else ()
            return Line(grid, np.median(values, axis=0), *ends)
        if self.options.metric == "train":
            values = np.stack([smooth(curve, grid) for curve in curves])
        else:
            values = np.stack([np.interp(grid, curve.env_step, curve.value) for curve in curves])
        interval = mean_interval(values, self.options.repetitions, self.options.seed)
        return Line(grid, values.mean(axis=0), *(interval or ()))

    @cached_property
    def aggregates(self) -> dict[str, dict[str, Estimate]]:
        """Scores over the shared tasks, by label and name of the aggregate."""
        if not self.shared_tasks:
            return {}
        scores = {
            label: [self.scores(task, label) for task in self.shared_tasks] for label in self.labels
        }
        return aggregate(scores, self.options.repetitions, self.options.seed)

    @cached_property
    def improvements(self) -> list[Improvement]:
        """Every pair of labels that share a task."""
        found = []
        for label, other in combinations(self.labels, 2):
            tasks = tuple(t for t in self.tasks if {label, other} <= self.of_task(t).keys())
            if tasks:
                estimate = improvement(
                    [self.finals[task, label] for task in tasks],
                    [self.finals[task, other] for task in tasks],
                    self.options.repetitions,
                    self.options.seed,
                )
                found.append(Improvement(label, other, tasks, estimate))
        return found
