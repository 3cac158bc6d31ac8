"""Schedules of the consolidation coefficient (lambda) and of epsilon, by environment step."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

Schedule = Callable[[int], float]
"""Maps the number of environment steps taken so far to a value."""


@dataclass(frozen=True)
class ConstantSchedule:
    """The same value at every environment step: the fixed lambdas of the paper's Figure 3(a).

    :param value: the value to return.
    """

    value: float

    def __post_init__(self) -> None:
        _require_finite("value", self.value)

    def __call__(self, env_step: int) -> float:
        """Return the value, whatever the step."""
        return self.value


@dataclass(frozen=True)
class LinearSchedule:
    """A line from ``start`` to ``end``, constant after it: the paper's strategy for lambda.

    :param start: the value at environment step 0.
    :param end: the value from ``duration_env_steps`` on.
    :param duration_env_steps: how many environment steps the line takes.
    """

    start: float
    end: float
    duration_env_steps: int

    def __post_init__(self) -> None:
        _require_finite("start", self.start)
        _require_finite("end", self.end)
        if self.duration_env_steps < 1:
            raise ValueError(
                f"duration_env_steps={self.duration_env_steps} must be at least 1; "
                "use ConstantSchedule for a value that never changes"
            )

    def __call__(self, env_step: int) -> float:
        """Return the value at an environment step."""
        share = min(max(env_step / self.duration_env_steps, 0.0), 1.0)
        # Not start + share * (end - start): this form gives `end` exactly at share 1.
        return (1.0 - share) * self.start + share * self.end


def _require_finite(name: str, value: float) -> None:
    if not isfinite(value):
        raise ValueError(f"{name}={value} must be a finite number")


def require_coef(value: float) -> float:
    """Return a consolidation coefficient; raise ``ValueError`` for a number that cannot be one."""
    if not (isfinite(value) and value >= 0):
        raise ValueError(f"consolidation_coef={value} must be a number of at least 0")
    return float(value)
