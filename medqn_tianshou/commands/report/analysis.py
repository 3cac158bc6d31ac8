"""All numbers of a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from medqn_tianshou.commands.curves import GRID_POINTS, Curve, on_grid
from medqn_tianshou.commands.report.groups import Groups, labels_of, tasks_of
from medqn_tianshou.commands.report.protocol import Protocol, describe_task
from medqn_tianshou.commands.report.runs import (
    LeftOut,
    Metric,
    RecordedRun,
    UnusableRunError,
)
from medqn_tianshou.commands.report.statistics import (
    Array,
    Estimate,
    Scale,
    aggregate,
    improvement,
    mean_interval,
    scale_of,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for.

    :param metric: training or evaluation returns.
    :param window: episodes or evaluations that a return averages over; None is the runs' own.
    :param repetitions: of the bootstrap.
    :param seed: its draws follow from it.
    :param bounds: tasks' scales given by hand.
    """

    metric: Metric
    window: int | None = None
    repetitions: int = 2000
    seed: int = 0
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """A learning curve over runs: the mean, and its interval if there is more than one run."""

    env_steps: Array
    mean: Array
    low: Array | None
    high: Array | None


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
    """Read the returns of runs by the runs' names, and tell which have none.

    :param runs: the runs.
    :param options: which returns.
    """
    curves, left_out = {}, []
    for run in runs:
        try:
            curves[run.name] = run.curve(options.metric, options.window)
        except UnusableRunError as error:
            left_out.append(LeftOut(run.name, str(error)))
    return curves, left_out


class Analysis:
    """The numbers of a report.

    :param groups: the runs by task and label.
    :param curves: their returns by the runs' names.
    :param options: what the command line asks for.
    """

    def __init__(self, groups: Groups, curves: Mapping[str, Curve], options: Options) -> None:
        self.groups = groups
        self.options = options
        self.tasks = tasks_of(groups)
        self.labels = labels_of(groups)
        self.curves = {key: [curves[run.name] for run in runs] for key, runs in groups.items()}
        self.finals: dict[tuple[str, str], Array] = {
            key: np.array([curve.value[-1] for curve in of_key])
            for key, of_key in self.curves.items()
        }
        self.protocols: dict[str, Protocol] = {
            task: describe_task(task, self.of_task(task), options.metric, options.window)
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
        self.aggregates = (
            aggregate(
                {
                    label: [self.scores(task, label) for task in self.shared_tasks]
                    for label in self.labels
                },
                options.repetitions,
                options.seed,
            )
            if self.shared_tasks
            else {}
        )
        self.improvements = list(self._improvements())

    def of_task(self, task: str) -> dict[str, list[RecordedRun]]:
        """The runs of a task by label."""
        return {label: runs for (of, label), runs in self.groups.items() if of == task}

    def scores(self, task: str, label: str) -> Array:
        """The normalised final returns of a group."""
        scale = self.scales[task]
        returns = self.finals[task, label]
        return np.full_like(returns, np.nan) if scale is None else scale(returns)

    def final_mean(self, task: str, label: str) -> Estimate:
        """The mean final return of a group."""
        returns = self.finals[task, label]
        interval = mean_interval(returns, self.options.repetitions, self.options.seed)
        mean = float(returns.mean())
        return Estimate(mean) if interval is None else Estimate(mean, *map(float, interval))

    @property
    def is_smoothed(self) -> bool:
        """Whether learning curves are. Evaluations are few, and means already."""
        return self.options.metric == "train"

    def line(self, task: str, label: str) -> Line:
        """The learning curve of a group."""
        curves = self.curves[task, label]
        # As far as all runs got: a mean over fewer and fewer runs would jump.
        grid = np.linspace(0, min(curve.env_steps for curve in curves), GRID_POINTS)
        values = np.stack(
            [
                on_grid(curve, grid)
                if self.is_smoothed
                else np.interp(grid, curve.env_step, curve.value)
                for curve in curves
            ]
        )
        # Before the first return of any run there is nothing to show; of a smoothed curve, some
        # points tell the same as all.
        is_shown = grid >= min(curve.env_step[0] for curve in curves)
        if self.is_smoothed:
            is_shown &= np.arange(GRID_POINTS)[::-1] % 4 == 0
        grid, values = grid[is_shown], values[:, is_shown]
        interval = mean_interval(values, self.options.repetitions, self.options.seed)
        return Line(grid, values.mean(axis=0), *(interval or (None, None)))

    def _improvements(self) -> list[Improvement]:
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
