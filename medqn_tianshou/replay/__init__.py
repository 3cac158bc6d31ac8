"""Replay in a small part of the memory: observations in blocks, encoded without loss."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
    from medqn_tianshou.replay.file import ReplayFileError

__all__ = ["CompactVectorReplayBuffer", "ReplayFileError"]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used (PEP 562)."""
    if name == "CompactVectorReplayBuffer":
        from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer

        return CompactVectorReplayBuffer
    if name == "ReplayFileError":
        from medqn_tianshou.replay.file import ReplayFileError

        return ReplayFileError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
