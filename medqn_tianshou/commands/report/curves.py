"""Learning curves: returns of the last episodes at environment steps, on a grid, smoothed."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
GRID_POINTS = 400
SMOOTHING = 0.9
"""Weight of the past in the exponential average; the paper smooths but does not say how much."""
SMOOTHING_TEXT = f"smoothed exponentially (weight {SMOOTHING} of the past on {GRID_POINTS} points)"


@dataclass(frozen=True)
class Curve:
    """Mean return of the last episodes, at the environment step where each episode ended."""

    env_step: Array
    value: Array
    env_steps: int
    """The length of the run."""


def read_curve(path: Path, window: int, env_steps: int) -> Curve:
    """Read the episodes of a run.

    :param path: its ``episodes.csv``.
    :param window: how many episodes to average over.
    :param env_steps: the length of the run.
    """
    with path.open() as file:
        rows = list(csv.DictReader(file))
    steps, returns = (np.array([float(row[key]) for row in rows]) for key in ("env_step", "return"))
    return Curve(steps, last_means(returns, window), env_steps)


def last_means(values: Array, window: int) -> Array:
    """Average each value with those before it, as many as the window has."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: Array = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def final_returns(curves: Iterable[Curve]) -> Array:
    """Return the last value of each run that finished an episode."""
    return np.array([curve.value[-1] for curve in curves if len(curve.value)])


def mean_and_error(values: Array) -> tuple[Any, Any]:
    """Compute mean and standard error over the first axis; a single run has an error of 0."""
    count = len(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(values[0])
    return values.mean(axis=0), error


def format_mean(values: Array, digits: int) -> str:
    """Write the mean and, if there is more than one value, its standard error."""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if len(values) > 1 else "")


def smooth(values: Array) -> Array:
    """Smooth values that are evenly spaced."""
    smoothed = np.empty_like(values)
    average = values[0]
    for index, value in enumerate(values):
        average = SMOOTHING * average + (1 - SMOOTHING) * value
        smoothed[index] = average
    return smoothed


def on_grid(curve: Curve, grid: Array) -> Array:
    """Return the smoothed curve at evenly spaced environment steps.

    The curve keeps its value between episodes, and its first value before the first episode.
    """
    last = np.searchsorted(curve.env_step, grid, side="right") - 1
    return smooth(curve.value[np.maximum(last, 0)])
