"""MeDQN for Tianshou: deep Q-learning that learns as well on a small memory."""

from typing import Any

from medqn_tianshou.algorithm.loss import consolidation_loss
from medqn_tianshou.algorithm.networks import MinAtarQNetwork, MLPQNetwork, NatureQNetwork
from medqn_tianshou.algorithm.policy import MeDQNPolicy, MeDQNTrainingStats
from medqn_tianshou.algorithm.samplers import (
    MixedStateSampler,
    RealStateSampler,
    StateSampler,
    UniformStateSampler,
)
from medqn_tianshou.algorithm.schedules import ConstantSchedule, LinearSchedule
from medqn_tianshou.collecting.lean import LeanCollector
from medqn_tianshou.collecting.overlapping import OverlappingCollector
from medqn_tianshou.envs.minatar import register_minatar_games
from medqn_tianshou.envs.ple import register_ple_games
from medqn_tianshou.replay import CompactVectorReplayBuffer, ReplayFileError
from medqn_tianshou.replay.tianshou_buffers import seed_replay_buffer
from medqn_tianshou.training.memory import MemoryMonitor
from medqn_tianshou.version import __version__

__all__ = [
    "CompactVectorReplayBuffer",
    "ConstantSchedule",
    "FastMeDQNPolicy",
    "FusedRMSprop",
    "LeanCollector",
    "LinearSchedule",
    "MLPQNetwork",
    "MeDQNPolicy",
    "MeDQNTrainingStats",
    "MemoryMonitor",
    "MinAtarQNetwork",
    "MixedStateSampler",
    "NatureQNetwork",
    "OverlappingCollector",
    "RealStateSampler",
    "ReplayFileError",
    "StateSampler",
    "UniformStateSampler",
    "__version__",
    "consolidation_loss",
    "seed_replay_buffer",
]


def __getattr__(name: str) -> Any:
    """Import what is only about speed when it is asked for."""
    if name == "FastMeDQNPolicy":
        from medqn_tianshou.fast.policy import FastMeDQNPolicy

        return FastMeDQNPolicy
    if name == "FusedRMSprop":
        from medqn_tianshou.fast.optimizers import FusedRMSprop

        return FusedRMSprop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register_ple_games()
register_minatar_games()
