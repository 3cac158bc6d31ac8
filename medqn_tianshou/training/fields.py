"""How settings and options are declared: a type, a range, and a flag on the command line.

A field is annotated as ``lr: Annotated[float, Range(above=0), Flag("learning rate", DQN)]``. The
command line reads the flags from these annotations, and :func:`check_fields` the types and ranges.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from sys import float_info
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from medqn_tianshou.training.errors import ConfigError

RUN = "what to run"
DQN = "DQN"
CONSOLIDATION = "knowledge consolidation"
SPEED = "speed"
FILES = "memory and files"
GROUPS = (RUN, DQN, CONSOLIDATION, SPEED, FILES)
"""The groups of flags, in the order of ``--help``."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """The numbers that a field allows."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            abs(value) <= float_info.max  # and a number
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
        )

    def describe(self, kind: type) -> str:
        """Describe the numbers of a type in this range, e.g. ``a whole number of at least 1``."""
        limits = {"of at least": self.at_least, "above": self.above, "at most": self.at_most}
        texts = [
            f"{words} {limit:,g}" if limit < 1e6 else f"{words} {limit:,.0f}"
            for words, limit in limits.items()
            if limit is not None
        ]
        noun = "a whole number" if kind is int else "a number"
        return f"{noun} {' and '.join(texts)}".strip()


@dataclass(frozen=True)
class Flag:
    """A field's flag on the command line.

    :param help: what the field means, and its unit.
    :param group: one of :data:`GROUPS`.
    :param default: the default in words, where the settings files do not state it.
    :param name: the flag; None is the field's name with dashes.
    :param parse: reads the value, and raises ``ValueError`` if it cannot; None goes by the type.
    """

    help: str
    group: str
    default: str | None = None
    name: str | None = None
    parse: Callable[[str], Any] | None = None
    metavar: str | None = None
    aliases: tuple[str, ...] = ()
    """Other spellings of the flag."""


MOST_STEPS = 10**12
Count = Annotated[int, Range(at_least=1, at_most=MOST_STEPS)]
CountOrZero = Annotated[int, Range(at_least=0, at_most=MOST_STEPS)]
Share = Annotated[float, Range(at_least=0, at_most=1)]
Weight = Annotated[float, Range(at_least=0)]


@dataclass(frozen=True, kw_only=True)
class FieldSpec:
    """What a field's annotation says.

    :param kind: the type of its values; of the first one where they are choices.
    """

    name: str
    kind: type
    choices: tuple[Any, ...]
    is_optional: bool
    range: Range
    flag: Flag | None

    @property
    def flag_name(self) -> str:
        """The flag of the field, whether or not the command line has it."""
        named = self.flag.name if self.flag else None
        return named or f"--{self.name.replace('_', '-')}"

    def check(self, value: Any) -> None:
        """Raise :class:`ConfigError` unless a value is of the field's type and range."""
        if value is None and self.is_optional:
            return
        if self.choices:
            if value not in self.choices:
                choices = ", ".join(map(str, self.choices))
                raise ConfigError(self.name, value, f"is unknown; choose from {choices}")
        elif self.kind in (int, float):
            allowed = (int,) if self.kind is int else (int, float)
            if isinstance(value, bool) or not isinstance(value, allowed) or value not in self.range:
                raise ConfigError(self.name, value, f"must be {self.range.describe(self.kind)}")
        elif not isinstance(value, self.kind):
            raise ConfigError(self.name, value, f"must be a {self.kind.__name__}")


_known_specs: dict[type, dict[str, FieldSpec]] = {}


def field_specs(cls: type[Any]) -> dict[str, FieldSpec]:
    """Read the annotations of a dataclass."""
    if cls not in _known_specs:
        hints = get_type_hints(cls, include_extras=True)
        _known_specs[cls] = {f.name: _spec(f.name, hints[f.name]) for f in fields(cls)}
    return _known_specs[cls]


def _spec(name: str, hint: Any) -> FieldSpec:
    notes: dict[type, Any] = {}
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        notes = {type(extra): extra for extra in extras}
    members = [member for member in get_args(hint) if member is not NoneType]
    is_optional = len(members) < len(get_args(hint))
    if is_optional and len(members) == 1:
        hint = members[0]
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    kind = type(choices[0]) if choices else get_origin(hint) or hint
    return FieldSpec(
        name=name,
        kind=kind if isinstance(kind, type) else object,
        choices=choices,
        is_optional=is_optional,
        range=notes.get(Range, Range()),
        flag=notes.get(Flag),
    )


def check_fields(instance: Any) -> None:
    """Check all values of a dataclass against their annotations.

    :raises ConfigError: for the first value that does not fit.
    """
    specs, sources = field_specs(type(instance)), getattr(instance, "sources", {})
    # Derived values come last: an error in one is an error in its source.
    for name in sorted(specs, key=lambda name: sources.get(name) == "derived"):
        specs[name].check(getattr(instance, name))


def existing_file(text: str) -> Path:
    """Read the path of a file that exists."""
    if not Path(text).is_file():
        raise ValueError(f"{text!r} is not a file; name one that exists")
    return Path(text)
