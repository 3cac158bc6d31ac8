"""SIGINT and SIGTERM: a run ends after its training step, with a checkpoint."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from medqn_tianshou.training.loop import Training


@contextmanager
def stop_on_signals(training: Training) -> Iterator[None]:
    """Let SIGINT and SIGTERM end a run after its training step; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if training.stop_signal is not None:
            raise KeyboardInterrupt
        training.stop_signal = number
        print(
            "stopping after this training step, with a checkpoint; once more stops at once",
            file=sys.stderr,
        )

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
