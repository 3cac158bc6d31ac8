"""What a policy remembers of inspections: which code may act and update its networks."""

from typing import Any, NamedTuple, Self

from medqn_tianshou.fast.acting import Actor
from medqn_tianshou.fast.known import KnownNetwork


class Inspected(NamedTuple):
    """What an inspection before an update found."""

    buffer: Any
    known: tuple[KnownNetwork, KnownNetwork] | None
    """Online and target network; None if the plain code must run."""
    at_once: bool
    """Whether the compiled code can take all gradient steps in one call."""


class Undisturbed:
    """Results of inspections, where nobody else changes the policy; a copy or pickle is empty."""

    def __init__(self) -> None:
        self.is_on = False
        self.update: Inspected | None = None
        self.actors: dict[bool, Actor] = {}

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()
