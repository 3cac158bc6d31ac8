"""The parser of all command lines, and types of arguments."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from medqn_tianshou.training import fields
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import Range


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line: argument, value, remedy. Exit code 2."""

    def __init__(self, **options: Any) -> None:
        # A prefix of a flag is not a flag: it may become ambiguous with the next release.
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options
        )

    def error(self, message: str) -> NoReturn:
        """Print the message without the usage, and exit."""
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        sys.exit(2)

    def flag_of(self, name: str) -> str:
        """Return the flag of a setting or an option."""
        flags = (action.option_strings for action in self._actions if action.dest == name)
        return next((names[0] for names in flags if names), f"--{name.replace('_', '-')}")

    def bad(self, flag: str, value: Any, problem: str) -> NoReturn:
        """Report a bad value of an argument; ``problem`` is what is wrong, and what to do."""
        self.error(f"argument {flag}: {value} {problem}")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Report a :class:`ConfigError` raised inside as a bad value of its flag."""
        try:
            yield
        except ConfigError as error:
            flag, value = self.flag_of(error.setting), error.value
            if value is True:  # a flag without a value
                self.error(f"argument {flag}: {error.remedy}")
            self.bad(flag, repr(value) if error.setting == "task" else value, error.remedy)


def argument_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make an argument type of a function that raises ``ValueError`` with the whole problem."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def number(kind: type[int] | type[float], **limits: float) -> Callable[[str], Any]:
    """Make an argument type for numbers within the limits of a :class:`Range`."""
    return number_in(kind, Range(**limits))


def number_in(kind: type, allowed: Range) -> Callable[[str], Any]:
    """Make an argument type for numbers in a range."""

    def parse(text: str) -> Any:
        try:
            # 1e5 is how people write 100000.
            value = float(text)
            if kind is int:
                value = int(text) if not value.is_integer() or "e" not in text.lower() else value
        except (ValueError, OverflowError):
            value = float("nan")
        if value not in allowed:
            raise ValueError(f"{text!r} must be {allowed.describe(kind)}")
        return kind(value)

    return argument_type(parse)


existing_folder = argument_type(fields.existing_folder)
