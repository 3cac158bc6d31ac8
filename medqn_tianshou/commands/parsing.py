"""The parser of all command lines, and types of arguments."""

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import Range

_MOST_SHOWN = 2000


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line: argument, value, remedy. Exit code 2."""

    def __init__(self, **options: Any) -> None:
        # A prefix of a flag is not a flag: it may become ambiguous with the next release.
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options
        )

    def error(self, message: str) -> NoReturn:
        """Print the message on one line, with the nearest flag to a wrong one, and exit."""
        if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            flags = list(self._option_string_actions)
            near = difflib.get_close_matches(unknown[1], flags, n=1)
            message += f"; did you mean {near[0]}?" if near else "; --help lists the flags"
        print(f"{self.prog}: error: {one_line(message)}", file=sys.stderr)
        sys.exit(2)

    def flag_of(self, name: str) -> str:
        """Return the flag of a setting or an option."""
        flags = (action.option_strings for action in self._actions if action.dest == name)
        return next((names[0] for names in flags if names), f"--{name.replace('_', '-')}")

    def bad(self, flag: str, value: Any, problem: str) -> NoReturn:
        """Report a bad value of an argument; ``problem`` is what is wrong, and what to do."""
        self.error(f"argument {flag}: {value} {problem}")

    def typed(self, arguments: Sequence[str] | None) -> str:
        """Return the command as the user typed it; None are the process's arguments."""
        return shlex.join([*self.prog.split(), *(sys.argv[1:] if arguments is None else arguments)])

    def add_out(self, default: Path) -> None:
        """Add where results go, and whether they may replace those that are there."""
        self.add_argument("--out", type=Path, default=default, help=f"folder (default: {default})")
        text = "replace the results in the folder"
        self.add_argument("--overwrite", action="store_true", help=text)

    def check_overwrite(self, args: argparse.Namespace) -> None:
        """Refuse to replace results without ``--overwrite``."""
        if (args.out / "README.md").exists() and not args.overwrite:
            remedy = "has results; name another folder, or replace them with --overwrite"
            self.bad("--out", args.out, remedy)

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


def one_line(message: str) -> str:
    """Escape unprintable characters, such as line ends in names from untrusted files."""
    shown = message if len(message) <= _MOST_SHOWN else f"{message[:_MOST_SHOWN]}..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


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
