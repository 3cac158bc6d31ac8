"""Keeps the whole process below a memory cap by evicting the replay buffer's oldest transitions."""

import ctypes
from collections.abc import Callable

from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
from medqn_tianshou.training.memory import format_bytes

_NEAR = 0.95
_AIM = 0.90


class MemoryWatch:
    """Evicts the oldest transitions of a compact replay buffer when memory runs short.

    A cap below what the process needs without a buffer cannot hold for the process, and is not
    watched; it still caps the buffer.

    :param buffer: the replay buffer.
    :param cap: the most bytes that the process should need.
    :param rss: returns the resident bytes of the process now.
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
        """Evict transitions if necessary, and return a line for the user if some were evicted."""
        rss = self._rss()
        if not self.is_on or rss <= self._threshold:
            return None
        before = len(self._buffer)
        self._buffer.lower_max_bytes(max(int(self._buffer.nbytes - (rss - _AIM * self._cap)), 0))
        _return_free_memory()
        # Freed memory does not always return to the system, but the process uses it again: only
        # growth beyond the present size calls for another eviction.
        self._threshold = max(_NEAR * self._cap, self._rss() + (1 - _NEAR) * self._cap)
        return (
            f"memory: {format_bytes(rss)} come near --memory-cap {format_bytes(self._cap)}; the "
            f"replay buffer evicted its oldest {before - len(self._buffer):,} transitions and "
            f"stays below {format_bytes(self._buffer.max_bytes or 0)} from now on"
        )


def _return_free_memory() -> None:
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # not the GNU C library
        return
