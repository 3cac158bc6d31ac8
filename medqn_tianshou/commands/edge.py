"""Runs commands: unexpected errors and signals become one line."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

TRACEBACK = "--traceback"
_UNEXPECTED = (OSError, RuntimeError, MemoryError, OverflowError)  # also a RecursionError


def run_main(main: Callable[[Sequence[str]], int], prog: str | None = None) -> int:
    """Run a command with the process's arguments; report an unexpected error in one line.

    With ``--traceback`` among the arguments, such an error is raised.

    :param prog: the command that the user typed; None is the script's name.
    """
    arguments = sys.argv[1:]
    shows_all = TRACEBACK in arguments
    try:
        try:
            return main([argument for argument in arguments if argument != TRACEBACK])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as `head` does
        # Otherwise the interpreter would flush to it once more, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as error:
        if shows_all:
            raise
        return exit_code(error)
    except _UNEXPECTED as error:
        if shows_all:
            raise
        name = prog or os.path.basename(sys.argv[0])  # noqa: PTH119
        text = str(error).strip().splitlines()
        what = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        print(f"{name}: error: {what}; {TRACEBACK} shows where", file=sys.stderr)
        return 1


def interrupt_on_sigterm() -> None:
    """Let SIGTERM interrupt the process as Ctrl-C does; :func:`exit_code` tells them apart."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt(number)


def exit_code(interruption: KeyboardInterrupt) -> int:
    """Return the exit code of an interrupted process: 130 after Ctrl-C, 143 after SIGTERM."""
    number = interruption.args[0] if interruption.args else signal.SIGINT
    return 128 + int(number)


@contextmanager
def loading() -> Iterator[None]:
    """Print that libraries are being imported, and let Ctrl-C end the process at once.

    Some libraries continue when an import of theirs is interrupted, and others fail later.
    """
    shows = sys.stderr is not None and sys.stderr.isatty()
    before = signal.getsignal(signal.SIGINT)
    # Not where it is ignored, as in the background of a shell, nor in a thread, which cannot.
    is_ours = before is signal.default_int_handler and current_thread() is main_thread()
    if shows:
        print("loading torch and Tianshou ...", end="", file=sys.stderr, flush=True)
    if is_ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
        if shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
