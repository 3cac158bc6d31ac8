"""The coefficient that holds the drift of the network at a set point."""

from math import exp, sqrt

import pytest
import torch

from medqn_tianshou import AdaptiveCoefficient, relative_drift


def test_the_drift_is_the_distance_over_the_spread():
    q_BA = torch.tensor([[1.0, 5.0], [3.0, 7.0]], requires_grad=True)
    target_q_BA = torch.tensor([[1.0, 3.0], [3.0, 5.0]])  # mean 3, squares 4, 0, 0, 4: variance 2
    drift = relative_drift(q_BA, target_q_BA)  # squares 0, 4, 0, 4: mean 2
    assert drift.item() == pytest.approx(sqrt(2) / sqrt(2))
    assert not drift.requires_grad
    assert relative_drift(q_BA + 100, target_q_BA + 100).item() == pytest.approx(1.0)
    assert relative_drift(10 * q_BA, 10 * target_q_BA).item() == pytest.approx(1.0)
    assert relative_drift(target_q_BA, target_q_BA).item() == 0


def test_the_coefficient_moves_by_the_error_and_stays_within_its_limits():
    coef = AdaptiveCoefficient(0.1, start=1.0, low=0.5, high=2.0, rate=0.2)
    assert coef(0) == coef(10**6) == 1.0
    assert coef.follow(0.15) == pytest.approx(exp(0.2 * 0.5))
    assert coef.follow(0.05) == pytest.approx(1.0)
    assert coef.follow(float("inf")) == pytest.approx(exp(0.2))  # an error counts as at most 1
    for _ in range(10):
        coef.follow(1.0)
    assert coef(0) == 2.0
    for _ in range(20):
        coef.follow(0.0)
    assert coef(0) == 0.5


def test_a_drift_that_falls_with_the_coefficient_is_held_at_the_set_point():
    coef = AdaptiveCoefficient(0.05, rate=0.01)
    for _ in range(5_000):
        coef.follow(0.02 / coef.value)
    assert coef.value == pytest.approx(0.4, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"set_point": 0.0}, "set_point=0.0 must be a number above 0"),
        ({"set_point": 1.0, "low": 0.0}, "low=0.0 must be"),
        ({"set_point": 1.0, "rate": float("nan")}, "rate=nan must be"),
        ({"set_point": 1.0, "start": 9.0}, "9.0 must be within its limits, 0.001 to 8.0"),
    ],
)
def test_bad_arguments_are_named(options, error):
    with pytest.raises(ValueError, match=error):
        AdaptiveCoefficient(**options)
