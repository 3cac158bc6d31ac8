"""Replay that takes a small part of the memory: blocks of observations, encoded without loss."""

from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
from medqn_tianshou.replay.file import ReplayFileError

__all__ = ["CompactVectorReplayBuffer", "ReplayFileError"]
