"""Learning curves: returns of the last episodes at environment steps, on a grid, smoothed."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
GRID_POINTS = 400
RELEASED_WINDOW = 100
"""Training episodes that the authors' released analysis averages over for its tables."""
SMOOTHING_TEXT = (
    f"smoothed by a symmetric exponential average (decay: 1 of {GRID_POINTS} grid steps)"
)


@dataclass(frozen=True)
class Curve:
    """Mean return of the last episodes, at the environment step where each episode ended."""

    env_step: Array
    value: Array
    env_steps: int
    """The length of the run."""
    hundreds: Array | None = None
    """The same over the last 100 training episodes, or over all if there are fewer."""

    @property
    def last_100(self) -> float | None:
        """Mean return of the last 100 training episodes."""
        return None if self.hundreds is None or not len(self.hundreds) else self.hundreds[-1]

    def until(self, env_step: int) -> "Curve":
        """Return the curve of a run that had ended at an environment step."""
        kept = self.env_step <= env_step
        hundreds = None if self.hundreds is None else self.hundreds[kept]
        shorter = {"env_step": self.env_step[kept], "value": self.value[kept]}
        return replace(self, env_steps=env_step, hundreds=hundreds, **shorter)


def read_curve(path: Path, window: int, env_steps: int) -> Curve:
    """Read the ``episodes.csv`` of a run; a value averages over ``window`` episodes."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    steps, returns = (np.array([float(row[key]) for row in rows]) for key in ("env_step", "return"))
    if not (np.isfinite(steps).all() and np.isfinite(returns).all()):
        raise ValueError("a number that is not finite")
    return Curve(
        steps, last_means(returns, window), env_steps, last_means(returns, RELEASED_WINDOW)
    )


def last_means(values: Array, window: int) -> Array:
    """Average each value with those before it, as many as the window has."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: Array = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def final_returns(curves: Iterable[Curve]) -> Array:
    """Return the last value of each run."""
    return np.array([curve.value[-1] for curve in curves])


def mean_and_error(values: Array, ddof: int = 1) -> tuple[Any, Any]:
    """Compute mean and standard error over the first axis; a single run has an error of 0."""
    count = len(values)
    spread = values.std(axis=0, ddof=ddof) if count > 1 else np.zeros_like(values[0])
    return values.mean(axis=0), spread / np.sqrt(count)


def format_mean(values: Array, digits: int, ddof: int = 1) -> str:
    """Write the mean and, if there is more than one value, its standard error."""
    mean, error = mean_and_error(values, ddof)
    return f"{mean:,.{digits}f}" + (f" ± {error:,.{digits}f}" if len(values) > 1 else "")


def smooth(curve: Curve, grid: Array) -> Array:
    """Average a curve at evenly spaced environment steps, as the released analysis does.

    All points before and after a grid point count, with weights that decay by e per grid step:
    nothing is shifted in time.
    """
    decay = grid[1] - grid[0]
    smoothed = np.empty_like(grid)
    for index, place in enumerate(grid):
        distance = np.abs(curve.env_step - place) / decay
        weight = np.exp(distance.min() - distance)  # relative to the nearest: never all zero
        smoothed[index] = weight @ curve.value / weight.sum()
    return smoothed
