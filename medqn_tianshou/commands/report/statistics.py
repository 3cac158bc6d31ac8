"""Normalised scores, and their aggregates by rliable (Agarwal et al., NeurIPS 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np

from medqn_tianshou.commands.report.curves import Array
from medqn_tianshou.commands.report.runs import Metric
from medqn_tianshou.experiments.settings import load_settings

CONFIDENCE = 0.95
LEAST_RUNS = 3
"""The bootstrap interval of two runs would be their range."""
HUMAN, GIVEN, RUNS = "random and human player", "--bounds", "lowest and highest of the runs here"
"""Reasons for a scale."""
AGGREGATES = ("IQM", "mean", "median", "optimality gap")


@dataclass(frozen=True)
class Estimate:
    """A value and its confidence interval; None where a sample has too few runs for one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Scale:
    """What counts as 0 and as 1 in a task, and why."""

    low: float
    high: float
    reason: str

    @property
    def is_absolute(self) -> bool:
        """Whether scores compare with those of other reports."""
        return self.reason != RUNS

    def __call__(self, returns: Array) -> Array:
        """Turn returns into scores."""
        return (returns - self.low) / (self.high - self.low)


def scale_of(
    task: str, metric: Metric, returns: Array, bounds: Mapping[str, tuple[float, float]]
) -> Scale | None:
    """Choose the scale of a task; None if there is none, because all final returns are equal."""
    if task in bounds:
        return Scale(*bounds[task], GIVEN)
    scores = load_settings("atari_scores")["score"].get(task.removesuffix("NoFrameskip-v4"))
    # Training returns are of one life each, with clipped rewards: no human's compares.
    if metric == "eval" and task.endswith("NoFrameskip-v4") and scores is not None:
        return Scale(scores["random"], scores["human"], HUMAN)
    low, high = float(returns.min()), float(returns.max())
    return Scale(low, high, RUNS) if high > low else None


def mean_interval(values: Array, repetitions: int, seed: int) -> tuple[Array, Array] | None:
    """Bootstrap the mean over the first axis, which is that of runs; None for too few."""
    count = len(values)
    if count < LEAST_RUNS:
        return None
    random = np.random.default_rng(seed)
    # How often a resample has each run: its mean is a product with these.
    shares = random.multinomial(count, np.full(count, 1 / count), repetitions) / count
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(shares @ values, [tail, 1 - tail], axis=0)
    return low, high


def aggregate(
    scores: Mapping[str, Sequence[Array]], repetitions: int, seed: int
) -> dict[str, dict[str, Estimate]]:
    """Aggregate the scores of each algorithm over tasks, with stratified bootstrap intervals.

    :param scores: for each algorithm the scores of its runs on each of the same tasks.
    """
    from rliable import metrics

    measures = (
        metrics.aggregate_iqm,
        metrics.aggregate_mean,
        metrics.aggregate_median,
        metrics.aggregate_optimality_gap,
    )

    def measure(*tasks: Array) -> Array:
        # Columns of runs side by side: each task counts the same, however many runs it has.
        rows = lcm(*map(len, tasks))
        matrix = np.hstack([np.repeat(column, rows // len(column), axis=0) for column in tasks])
        return np.array([of(matrix) for of in measures])

    return {
        label: dict(zip(AGGREGATES, _estimate(measure, [*tasks], repetitions, seed), strict=True))
        for label, tasks in scores.items()
    }


def improvement(
    first: Sequence[Array], second: Sequence[Array], repetitions: int, seed: int
) -> Estimate:
    """Estimate how probably a run of one algorithm ends above a run of another, mean over tasks."""
    count = len(first)

    def measure(*tasks: Array) -> Array:
        # rliable's own function takes the same number from a rank test, in hundred times the time.
        shares = [
            np.mean((x > y.T) + 0.5 * (x == y.T))
            for x, y in zip(tasks[:count], tasks[count:], strict=True)
        ]
        return np.array([np.mean(shares)])

    return _estimate(measure, [*first, *second], repetitions, seed)[0]


def _estimate(
    measure: Any, samples: Sequence[Array], repetitions: int, seed: int
) -> list[Estimate]:
    """Measure, and bootstrap with each of the samples resampled by itself."""
    from rliable import library

    columns = [sample[:, None] for sample in samples]
    if any(len(sample) < LEAST_RUNS for sample in samples):
        return [Estimate(float(value)) for value in measure(*columns)]
    before = np.random.get_state()
    np.random.seed(seed % 2**32)  # rliable samples from numpy's global generator
    try:
        values, intervals = library.get_interval_estimates(
            {"": columns}, measure, reps=repetitions, confidence_interval_size=CONFIDENCE
        )
    finally:
        np.random.set_state(before)
    return [
        Estimate(*map(float, numbers)) for numbers in zip(values[""], *intervals[""], strict=True)
    ]
