"""The consolidation loss: how far the Q network has moved from its own target network."""

from typing import Literal, get_args

import torch
from torch.nn import functional as F  # noqa: N812

ConsolidationKind = Literal["mse", "huber", "kl"]
Reduction = Literal["mean", "sum"]


def consolidation_loss(
    q_BA: torch.Tensor,
    target_q_BA: torch.Tensor,
    *,
    kind: ConsolidationKind = "mse",
    reduction: Reduction = "mean",
) -> torch.Tensor:
    r"""Distance between two action-value functions on a batch of states.

    Always the mean over states. Over actions, ``reduction`` decides:

    * ``"mse"``: :math:`(Q - \hat Q)^2`, the paper's Equation 2;
    * ``"huber"``: the same, linear beyond 1, so that outliers cannot dominate;
    * ``"kl"``: :math:`\sum_a \pi(a) \log(\pi(a) / \hat\pi(a))` between the softmax policies of the
      two networks (Section 3.2). It is a sum over actions by definition; ``"mean"`` divides it by
      their number, as for the other kinds.

    No gradient flows into ``target_q_BA``.

    :param q_BA: action values of the online network, one row per state.
    :param target_q_BA: action values of the target network on the same states.
    :param kind: ``"mse"``, ``"huber"`` or ``"kl"``.
    :param reduction: ``"mean"`` over actions, with which the published lambdas were tuned, or
        ``"sum"`` over actions, as the paper's equation has it.
    :return: a scalar.
    """
    validate_consolidation_options(kind, reduction)
    if q_BA.ndim != 2 or q_BA.shape != target_q_BA.shape or q_BA.numel() == 0:
        raise ValueError(
            f"q_BA of shape {tuple(q_BA.shape)} and target_q_BA of shape "
            f"{tuple(target_q_BA.shape)} must be the same non-empty (states, actions)"
        )
    target_q_BA = target_q_BA.detach()
    if kind == "mse" and reduction == "mean":
        return F.mse_loss(q_BA, target_q_BA)  # the same in one step
    if kind == "mse":
        distance_BA = F.mse_loss(q_BA, target_q_BA, reduction="none")
    elif kind == "huber":
        distance_BA = F.huber_loss(q_BA, target_q_BA, reduction="none")
    else:
        # kl_div(input, target) is KL(target || input), hence the order.
        distance_BA = F.kl_div(
            target_q_BA.log_softmax(dim=1),
            q_BA.log_softmax(dim=1),
            reduction="none",
            log_target=True,
        )
    return distance_BA.mean() if reduction == "mean" else distance_BA.sum(dim=1).mean()


def validate_consolidation_options(kind: str, reduction: str) -> None:
    """Raise a ``ValueError`` that lists the choices for an unknown kind or reduction."""
    for name, value, choices in (
        ("kind", kind, get_args(ConsolidationKind)),
        ("reduction", reduction, get_args(Reduction)),
    ):
        if value not in choices:
            raise ValueError(f"consolidation {name}={value!r} must be one of {', '.join(choices)}")
