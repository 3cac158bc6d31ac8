"""What an update reports, and the error it raises when it diverges."""

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
    """None where the coefficient is 0: the term is not computed then."""
    consolidation_coef: float
    consolidation_drift: float | None = None
    """How far the networks are apart, relative to the spread of the values (``relative_drift``)."""
