"""Compact replay buffers: observations in blocks, compressed without loss."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
    from medqn_tianshou.replay.file import ReplayFileError
    from medqn_tianshou.replay.prioritized import CompactPrioritizedVectorReplayBuffer

__all__ = ["CompactPrioritizedVectorReplayBuffer", "CompactVectorReplayBuffer", "ReplayFileError"]

_HOMES = {
    "CompactPrioritizedVectorReplayBuffer": "prioritized",
    "CompactVectorReplayBuffer": "buffer",
    "ReplayFileError": "file",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
