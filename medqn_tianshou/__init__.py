"""MeDQN for Tianshou: deep Q-learning that learns as well on a small memory."""

from medqn_tianshou.collector import LeanCollector
from medqn_tianshou.compact import CompactVectorReplayBuffer, ReplayFileError
from medqn_tianshou.envs.minatar import register_minatar_games
from medqn_tianshou.envs.ple import register_ple_games
from medqn_tianshou.loss import consolidation_loss
from medqn_tianshou.memory import MemoryMonitor
from medqn_tianshou.networks import MinAtarQNetwork, MLPQNetwork, NatureQNetwork
from medqn_tianshou.optimizers import FusedRMSprop
from medqn_tianshou.overlap import OverlappingCollector
from medqn_tianshou.policy import MeDQNPolicy, MeDQNTrainingStats
from medqn_tianshou.replay import seed_replay_buffer
from medqn_tianshou.samplers import (
    MixedStateSampler,
    RealStateSampler,
    StateSampler,
    UniformStateSampler,
)
from medqn_tianshou.schedules import ConstantSchedule, LinearSchedule
from medqn_tianshou.version import __version__

__all__ = [
    "CompactVectorReplayBuffer",
    "ConstantSchedule",
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

register_ple_games()
register_minatar_games()
