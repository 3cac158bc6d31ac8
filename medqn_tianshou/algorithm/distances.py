"""Distances between distributions of the return: consolidation for distributional networks."""

import torch

from medqn_tianshou.algorithm.loss import Reduction, validate_consolidation_options

_SMALL = 1e-8
"""Added to probabilities before the logarithm, as in Tianshou's C51."""


def wasserstein_loss(
    quantiles_BAN: torch.Tensor, target_BAN: torch.Tensor, *, reduction: Reduction = "mean"
) -> torch.Tensor:
    r"""Wasserstein-1 distance between distributions given by quantiles at the same fractions.

    .. math:: W_1 = \int_0^1 |F^{-1}(\tau) - \hat F^{-1}(\tau)|\, d\tau \approx
        \frac{1}{N} \sum_i |q_i - \hat q_i|

    :param quantiles_BAN: quantiles of the online network, by state and action.
    :param target_BAN: those of the target network at the same fractions; they get no gradient.
    :param reduction: ``"mean"`` or ``"sum"`` over actions; always the mean over states.
    :return: a scalar.
    """
    _require_shapes(quantiles_BAN, target_BAN)
    return _reduce((quantiles_BAN - target_BAN.detach()).abs().mean(dim=2), reduction)


def categorical_kl_loss(
    probabilities_BAN: torch.Tensor, target_BAN: torch.Tensor, *, reduction: Reduction = "mean"
) -> torch.Tensor:
    r"""Divergence of categorical distributions from those of the target network.

    .. math:: KL(\hat p \,\|\, p) = \sum_i \hat p_i \log(\hat p_i / p_i)

    In this direction it is C51's own loss, the cross entropy, less the entropy of the target.

    :param probabilities_BAN: probabilities of the online network, by state and action.
    :param target_BAN: those of the target network; they get no gradient.
    :param reduction: ``"mean"`` or ``"sum"`` over actions; always the mean over states.
    :return: a scalar.
    """
    _require_shapes(probabilities_BAN, target_BAN)
    target_BAN = target_BAN.detach()
    ratio_BAN = (target_BAN + _SMALL).log() - (probabilities_BAN + _SMALL).log()
    return _reduce((target_BAN * ratio_BAN).sum(dim=2), reduction)


def _require_shapes(online_BAN: torch.Tensor, target_BAN: torch.Tensor) -> None:
    if online_BAN.ndim != 3 or online_BAN.shape != target_BAN.shape or online_BAN.numel() == 0:
        raise ValueError(
            f"distributions of shapes {tuple(online_BAN.shape)} and {tuple(target_BAN.shape)} must "
            "be the same non-empty (states, actions, values)"
        )


def _reduce(distance_BA: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    validate_consolidation_options("mse", reduction)
    return distance_BA.mean() if reduction == "mean" else distance_BA.sum(dim=1).mean()
