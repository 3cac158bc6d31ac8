"""Replay that takes a small part of the memory: blocks of observations, encoded without loss."""

from medqn_tianshou.compact.buffer import CompactVectorReplayBuffer
from medqn_tianshou.compact.file import ReplayFileError

__all__ = ["CompactVectorReplayBuffer", "ReplayFileError"]
