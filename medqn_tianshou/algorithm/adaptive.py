"""Lambda without a search: a coefficient that keeps the drift of the network at a set point."""

from dataclasses import dataclass, field
from math import exp, isfinite

import torch

LOW, HIGH = 0.001, 8.0
"""The limits of an adaptive coefficient; 8 is the largest lambda in the paper's Figure 3(a)."""


def relative_drift(q_BA: torch.Tensor, target_q_BA: torch.Tensor) -> torch.Tensor:
    r"""Distance between two action-value functions, relative to the spread of the values.

    .. math:: d = \frac{\sqrt{\mathrm{mean}\,(Q - \hat Q)^2}}{\mathrm{std}\,\hat Q}

    Mean and standard deviation are over states and actions. A constant that is added to all
    values does not change the drift.

    :param q_BA: action values of the online network, one row per state.
    :param target_q_BA: action values of the target network on the same states.
    :return: a scalar without gradient.
    """
    with torch.no_grad():
        distance = (q_BA - target_q_BA).pow(2).mean().sqrt()
        return distance / (target_q_BA.std(correction=0) + 1e-8)


@dataclass
class AdaptiveCoefficient:
    r"""A coefficient that rises while the drift is above its set point, and falls below it.

    After each update, in which the relative drift was :math:`d` (:func:`relative_drift`, the mean
    of its epochs):

    .. math:: \lambda \leftarrow \mathrm{clip}\left(\lambda \exp\left(\eta\,
        \mathrm{clip}(d / d^* - 1, -1, 1)\right), \lambda_{low}, \lambda_{high}\right)

    The drift is 0 after each copy to the target network and grows until the next: ``rate`` is small
    enough to follow its mean.

    :param set_point: the desired drift, :math:`d^*`.
    :param start: the initial value.
    :param low: the smallest value; above 0, because the drift is computed only with consolidation.
    :param high: the largest value.
    :param rate: the largest relative change per update, :math:`\eta`.
    """

    set_point: float
    start: float = 0.01
    low: float = LOW
    high: float = HIGH
    rate: float = 0.001
    value: float = field(init=False)
    """The coefficient now."""

    def __post_init__(self) -> None:
        for name in ("set_point", "low", "rate"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name}={getattr(self, name)} must be a number above 0")
        self.load(self.start)

    def __call__(self, env_step: int) -> float:
        """Return the current value, which does not depend on the step."""
        return self.value

    def follow(self, drift: float) -> float:
        """Adapt the value to the drift of an update, and return it.

        :param drift: what :func:`relative_drift` returned.
        """
        error = min(max(drift / self.set_point - 1.0, -1.0), 1.0)
        self.value = min(max(self.value * exp(self.rate * error), self.low), self.high)
        return self.value

    def load(self, value: float) -> float:
        """Continue from a saved value, and return it.

        :raises ValueError: if it is not within the limits.
        """
        if not (isfinite(self.high) and self.low <= value <= self.high):
            raise ValueError(
                f"a coefficient of {value} must be within its limits, {self.low} to {self.high}"
            )
        self.value = float(value)
        return self.value
