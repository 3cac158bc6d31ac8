"""Schemas of file contents: types, ranges and sizes, checked before use.

A schema is built from the functions below, in the shape of the content. Each returns a check: a
function that raises :class:`MisfitError` for a value that does not fit.
"""

from collections.abc import Callable, Collection, Mapping
from math import inf, isfinite
from typing import Any

Check = Callable[[Any], None]

MOST = 2**48
"""More than anything that is counted."""
_MOST_SHOWN = 40


class MisfitError(ValueError):
    """A value that its schema does not allow.

    :param problem: what is wrong with it.
    :param path: where it is, from the outside in.
    """

    def __init__(self, problem: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(path)} {problem}".strip())
        self.problem = problem
        self.path = path


def require(holds: bool, value: Any) -> None:
    """Raise :class:`MisfitError` for a value unless something holds."""
    if not holds:
        raise MisfitError(f"is {value!r:.{_MOST_SHOWN}}")


def check_at(name: str, check: Check, value: Any) -> None:
    """Check a value that has a name, which a misfit states."""
    try:
        check(value)
    except MisfitError as error:
        raise MisfitError(error.problem, (name, *error.path)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise MisfitError(f"does not fit ({error})", (name,)) from None


def whole(at_least: int = 0, at_most: int = MOST) -> Check:
    """Allow whole numbers."""
    return lambda value: require(type(value) is int and at_least <= value <= at_most, value)


def number(at_least: float = -inf, at_most: float = inf) -> Check:
    """Allow finite numbers."""

    def check(value: Any) -> None:
        sound = type(value) in (int, float) and abs(value) < 2.0**1000 and isfinite(value)
        require(sound and at_least <= value <= at_most, value)

    return check


def one_of(*choices: Any) -> Check:
    """Allow some values, of their own types."""
    known = [(type(choice), choice) for choice in choices]
    return lambda value: require((type(value), value) in known, value)


flag = one_of(False, True)


def text(value: Any) -> None:
    """Allow any text."""
    require(isinstance(value, str), value)


def anything(value: Any) -> None:
    """Allow everything: its owner checks it."""


def optional(check: Check) -> Check:
    """Allow None, too."""
    return lambda value: None if value is None else check(value)


def list_of(check: Check, length: int | None = None, *, at_most: int = MOST) -> Check:
    """Allow lists of equal items."""

    def check_list(value: Any) -> None:
        require(isinstance(value, list) and len(value) <= at_most, value)
        require(length is None or len(value) == length, value)
        for place, item in enumerate(value):
            check_at(str(place), check, item)

    return check_list


def items(*checks: Check) -> Check:
    """Allow lists of as many items as there are checks, one for each."""

    def check_items(value: Any) -> None:
        require(isinstance(value, list) and len(value) == len(checks), value)
        for place, (check, item) in enumerate(zip(checks, value, strict=True)):
            check_at(str(place), check, item)

    return check_items


def fields(checks: Mapping[str, Check], *, others: Collection[str] | None = ()) -> Check:
    """Allow dictionaries with a value for each name.

    :param others: names that may be there as well; None allows any.
    """

    def check_fields(value: Any) -> None:
        require(isinstance(value, dict), value)
        missing = checks.keys() - value.keys()
        unknown = set() if others is None else value.keys() - checks.keys() - set(others)
        if missing or unknown:
            problem = f"lacks {min(missing)}" if missing else f"has {min(unknown):.40}"
            raise MisfitError(problem)
        for name, check in checks.items():
            check_at(name, check, value[name])

    return check_fields


def mapping(check: Check) -> Check:
    """Allow dictionaries of equal values by any name."""

    def check_mapping(value: Any) -> None:
        require(isinstance(value, dict), value)
        for name, item in value.items():
            check_at(f"{name:.{_MOST_SHOWN}}", check, item)

    return check_mapping


def array(
    dtype: Any = None, *shape: int | None, at_least: float | None = None, at_most: float = inf
) -> Check:
    """Allow arrays.

    :param dtype: None allows all numbers.
    :param shape: None for any length.
    :param at_least: with ``at_most``, the range of the values; None allows all.
    """

    def check(value: Any) -> None:
        import numpy as np  # not above: the flags and help of a command do not load it

        require(isinstance(value, np.ndarray), value)
        fits = len(value.shape) == len(shape) and all(
            length in (None, own) for length, own in zip(shape, value.shape, strict=True)
        )
        if not fits or (dtype is not None and value.dtype != np.dtype(dtype)):
            raise MisfitError(f"is an array of {value.dtype} and {value.shape}")
        if at_least is not None and value.size:
            lowest, highest = value.min().item(), value.max().item()
            require(bool(at_least <= lowest and highest <= at_most), lowest)

    return check
