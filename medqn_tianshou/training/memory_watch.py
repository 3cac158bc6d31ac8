"""Holds the whole process to a memory cap, at the expense of the replay buffer's oldest."""

import ctypes
from collections.abc import Callable

from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.memory import format_bytes

_NEAR = 0.95
_AIM = 0.90


class MemoryWatch:
    """Makes a compact replay buffer give up its oldest transitions when memory runs short.

    A cap below what the process takes without a buffer cannot hold for the process, and is not
    watched; it still caps the buffer.

    :param buffer: the replay buffer.
    :param cap: the most bytes that the process should take.
    :param rss: tells what it takes now.
    """

    def __init__(
        self, buffer: CompactVectorReplayBuffer, *, cap: int, rss: Callable[[], int]
    ) -> None:
        self._buffer = buffer
        self._cap = cap
        self._rss = rss
        self.is_on = rss() - buffer.nbytes < _AIM * cap
        self._threshold = _NEAR * cap

    def check(self) -> str | None:
        """Give up transitions if need be; say so, for the user."""
        rss = self._rss()
        if not self.is_on or rss <= self._threshold:
            return None
        before = len(self._buffer)
        self._buffer.lower_max_bytes(max(int(self._buffer.nbytes - (rss - _AIM * self._cap)), 0))
        _return_free_memory()
        # What is freed is not always returned to the system. It is used again, though, so that
        # only further growth calls for more.
        self._threshold = max(_NEAR * self._cap, self._rss() + (1 - _NEAR) * self._cap)
        return (
            f"memory: {format_bytes(rss)} come near --memory-cap {format_bytes(self._cap)}; the "
            f"replay buffer gave up its oldest {before - len(self._buffer):,} transitions and "
            f"keeps to {format_bytes(self._buffer.max_bytes or 0)} from now on"
        )


def _return_free_memory() -> None:
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # not the GNU C library
        return
