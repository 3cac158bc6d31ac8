"""Distances between distributions, with values worked out by hand."""

from math import log

import pytest
import torch

from medqn_tianshou import categorical_kl_loss, wasserstein_loss


def test_the_wasserstein_distance_is_the_mean_distance_of_matching_quantiles():
    quantiles = torch.tensor([[[0.0, 1.0], [2.0, 4.0]], [[1.0, 1.0], [0.0, 0.0]]])
    target = torch.tensor([[[1.0, 3.0], [2.0, 4.0]], [[1.0, 1.0], [-1.0, 3.0]]])
    # By state and action: (1 + 2) / 2, 0; 0, (1 + 3) / 2.
    assert wasserstein_loss(quantiles, target).item() == pytest.approx(3.5 / 4)
    assert wasserstein_loss(quantiles, target, reduction="sum").item() == pytest.approx(3.5 / 2)


def test_a_shift_of_a_distribution_is_its_wasserstein_distance():
    quantiles = torch.randn(5, 3, 7)
    assert wasserstein_loss(quantiles + 2.5, quantiles).item() == pytest.approx(2.5, rel=1e-5)


def test_the_divergence_is_that_of_the_network_from_its_target():
    p = torch.tensor([[[0.5, 0.5], [0.25, 0.75]]])
    target = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    first = log(1 / 0.5)  # the empty category counts nothing
    second = 0.5 * log(0.5 / 0.25) + 0.5 * log(0.5 / 0.75)
    loss = categorical_kl_loss(p, target)
    assert loss.item() == pytest.approx((first + second) / 2, abs=1e-6)
    summed = categorical_kl_loss(p, target, reduction="sum")
    assert summed.item() == pytest.approx(first + second, abs=1e-6)
    assert categorical_kl_loss(target, target).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("loss", [wasserstein_loss, categorical_kl_loss])
def test_only_the_online_network_gets_a_gradient_and_shapes_must_fit(loss):
    online, target = (torch.rand(2, 3, 4).softmax(2).requires_grad_() for _ in range(2))
    loss(online, target).backward()
    assert online.grad.abs().sum() > 0
    assert target.grad is None
    for wrong in (target[:1], target[0]):
        with pytest.raises(ValueError, match="must be the same non-empty"):
            loss(online, wrong)
    with pytest.raises(ValueError, match="reduction='max'"):
        loss(online, target, reduction="max")
