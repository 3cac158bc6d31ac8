"""The statistics of an update, and the error for a loss that is not finite."""

from dataclasses import dataclass


class NonFiniteLossError(ArithmeticError):
    """The loss, and with it the Q network, is no longer finite."""


@dataclass(kw_only=True)
class LossTerms:
    """The terms of the loss, averaged over the epochs of one update."""

    loss: float
    """``td_loss + consolidation_coef * consolidation_loss``"""
    td_loss: float
    consolidation_loss: float | None
    """None if the coefficient is 0: the term is then not computed."""
    consolidation_coef: float
    consolidation_drift: float | None = None
    """The distance of the networks relative to the spread of the values (``relative_drift``)."""
