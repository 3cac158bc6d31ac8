"""What the scripts' command lines share: argument types, one-line errors, common checks."""

import argparse
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

import torch

from medqn_tianshou.training.memory import MB, MemoryLimit, format_bytes, parse_bytes


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

    def given(self, arguments: Sequence[str]) -> set[str]:
        """Tell which flags a command line names, by their names in the namespace.

        :param arguments: a command line that was parsed before.
        """
        defaults = {action: action.default for action in self._actions}
        try:
            for action in self._actions:
                action.default = argparse.SUPPRESS
            return set(vars(self.parse_args(arguments)))
        finally:
            for action, default in defaults.items():
                action.default = default

    def flag_of(self, name: str) -> str:
        """Return a flag by its name in the namespace."""
        return next(a.option_strings[0] for a in self._actions if a.dest == name)

    def bad(self, flag: str, value: Any, problem: str) -> NoReturn:
        """Report a bad value.

        :param flag: the argument, e.g. ``--task``.
        :param value: what was given.
        :param problem: what is wrong and what to do.
        """
        self.error(f"argument {flag}: {value} {problem}")


def number(
    kind: type[int] | type[float],
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Callable[[str], Any]:
    """Make an argument type for numbers in a range.

    :param kind: int or float.
    :param at_least: the smallest value allowed.
    :param above: a value that all allowed ones exceed.
    :param at_most: the largest value allowed.
    """
    noun = "a whole number" if kind is int else "a number"
    limits = [
        f"{words} {limit:g}"
        for words, limit in (("of at least", at_least), ("above", above), ("at most", at_most))
        if limit is not None
    ]
    wanted = " ".join([noun, " and ".join(limits)]).strip()

    def convert(text: str) -> Any:
        try:
            # 1e5 is how people write 100000.
            value = float(text)
            if kind is int:
                value = int(text) if not value.is_integer() or "e" not in text.lower() else value
        except (ValueError, OverflowError):
            value = float("nan")
        if (
            not isfinite(value)
            or (at_least is not None and value < at_least)
            or (above is not None and value <= above)
            or (at_most is not None and value > at_most)
        ):
            raise argparse.ArgumentTypeError(f"{text!r} must be {wanted}")
        return kind(value)

    return convert


def byte_size(text: str) -> int:
    """Argument type for sizes such as ``800M``."""
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0 bytes")
    return size


def torch_device(text: str) -> torch.device:
    """Argument type for a device that this machine has."""
    try:
        device = torch.device(text)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        have = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a device of this machine; it has {', '.join(have)}"
        ) from None
    return device


def default_device() -> str:
    """The device to use when none is named."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def existing_folder(text: str) -> Path:
    """Argument type for a folder to work in."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder; name one that exists")
    return path


def existing_file(text: str) -> Path:
    """Argument type for a file to read."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file; name one that exists")
    return path


TRAINING_RESERVE = 500 * MB
"""What a run takes beside its buffer after this check: compiled code, gradients, activations."""


def memory_left(limit: MemoryLimit) -> int:
    """What a replay buffer may take of the memory that is left."""
    return max(limit.available - TRAINING_RESERVE, 0)


def check_replay_fits(
    parser: Parser,
    *,
    size: int,
    nbytes: int,
    multiple: int,
    smallest: int,
    cap: int | None,
    limit: MemoryLimit,
) -> None:
    """Stop when the replay buffer would exceed the cap, or what the machine has left.

    :param parser: reports the error.
    :param size: transitions asked for.
    :param nbytes: the bytes they will take.
    :param multiple: the size is rounded up to a multiple of this, the number of environments.
    :param smallest: the smallest buffer that can be used.
    :param cap: ``--memory-cap``, if given.
    :param limit: what the machine or container has.
    """
    left = memory_left(limit)
    allowed = left if cap is None else min(cap, left)
    if nbytes <= allowed:
        return
    name = f"the {format_bytes(left)} that this {limit.source} has left for it"
    if allowed == cap:
        name = f"--memory-cap {format_bytes(cap)}"
    per_transition = nbytes / (-(-size // multiple) * multiple)
    fits = int(allowed / per_transition) // multiple * multiple
    remedy = (
        f"the largest that fits is --buffer-size {fits}"
        if fits >= smallest
        else f"even the smallest, {smallest}, does not fit; more memory is needed"
    )
    problem = f"transitions take {format_bytes(nbytes)}, more than {name}; {remedy}"
    parser.bad("--buffer-size", size, problem)
