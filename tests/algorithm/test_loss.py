"""The consolidation loss against values worked out by hand."""

import math

import pytest
import torch

from medqn_tianshou import consolidation_loss

# Differences: [[1, -3], [0.5, 0]]
Q_BA = torch.tensor([[2.0, 1.0], [0.5, -1.0]])
TARGET_Q_BA = torch.tensor([[1.0, 4.0], [0.0, -1.0]])


@pytest.mark.parametrize(
    ("kind", "reduction", "expected"),
    [
        # squares: 1 + 9 and 0.25 + 0
        ("mse", "mean", (1 + 9 + 0.25) / 4),
        ("mse", "sum", (1 + 9 + 0.25) / 2),
        # half squares up to 1, |d| - 0.5 beyond: 0.5 + 2.5 and 0.125 + 0
        ("huber", "mean", (0.5 + 2.5 + 0.125) / 4),
        ("huber", "sum", (0.5 + 2.5 + 0.125) / 2),
    ],
)
def test_squared_and_huber_values(kind, reduction, expected):
    loss = consolidation_loss(Q_BA, TARGET_Q_BA, kind=kind, reduction=reduction)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(("reduction", "actions"), [("mean", 2), ("sum", 1)])
def test_kl_is_of_the_online_policy_from_the_target_policy(reduction, actions):
    # logits log(3), 0 give the policy (3/4, 1/4); logits 0, 0 give (1/2, 1/2)
    q_BA = torch.tensor([[math.log(3.0), 0.0]])
    target_q_BA = torch.zeros(1, 2)
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    loss = consolidation_loss(q_BA, target_q_BA, kind="kl", reduction=reduction)
    assert loss.item() == pytest.approx(expected / actions)
    # ... and not the other way round
    reverse = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert abs(expected - reverse) > 0.01


@pytest.mark.parametrize("kind", ["mse", "huber", "kl"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradient_pulls_towards_the_target_and_only_the_online_values(kind, reduction):
    q_BA = Q_BA.clone().requires_grad_()
    target_q_BA = TARGET_Q_BA.clone().requires_grad_()
    loss = consolidation_loss(q_BA, target_q_BA, kind=kind, reduction=reduction)
    loss.backward()
    assert target_q_BA.grad is None
    closer = consolidation_loss(
        (q_BA - 0.01 * q_BA.grad).detach(), TARGET_Q_BA, kind=kind, reduction=reduction
    )
    assert closer < loss


@pytest.mark.parametrize("kind", ["mse", "huber", "kl"])
def test_zero_for_equal_values(kind):
    assert consolidation_loss(Q_BA, Q_BA, kind=kind, reduction="sum").item() == 0.0


def test_mean_over_states_does_not_depend_on_how_many_there_are():
    twice = consolidation_loss(Q_BA.repeat(2, 1), TARGET_Q_BA.repeat(2, 1), reduction="sum")
    assert twice.item() == consolidation_loss(Q_BA, TARGET_Q_BA, reduction="sum").item()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "l1"}, "kind='l1'.*mse, huber, kl"),
        ({"reduction": "max"}, "reduction='max'.*mean, sum"),
        ({"target_q_BA": torch.zeros(2, 3)}, r"shape \(2, 2\).*\(2, 3\)"),
        ({"q_BA": torch.zeros(4), "target_q_BA": torch.zeros(4)}, "states, actions"),
        ({"q_BA": torch.zeros(0, 2), "target_q_BA": torch.zeros(0, 2)}, "non-empty"),
    ],
)
def test_bad_input_is_named(changed, message):
    arguments = {"q_BA": Q_BA, "target_q_BA": TARGET_Q_BA, **changed}
    with pytest.raises(ValueError, match=message):
        consolidation_loss(arguments.pop("q_BA"), arguments.pop("target_q_BA"), **arguments)
