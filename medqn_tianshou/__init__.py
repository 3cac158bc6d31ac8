"""MeDQN for Tianshou: deep Q-learning that learns as well on a small memory."""

from medqn_tianshou.loss import consolidation_loss
from medqn_tianshou.networks import MLPQNetwork, NatureQNetwork
from medqn_tianshou.policy import MeDQNPolicy, MeDQNTrainingStats
from medqn_tianshou.samplers import (
    MixedStateSampler,
    RealStateSampler,
    StateSampler,
    UniformStateSampler,
)
from medqn_tianshou.schedules import ConstantSchedule, LinearSchedule
from medqn_tianshou.version import __version__

__all__ = [
    "ConstantSchedule",
    "LinearSchedule",
    "MLPQNetwork",
    "MeDQNPolicy",
    "MeDQNTrainingStats",
    "MixedStateSampler",
    "NatureQNetwork",
    "RealStateSampler",
    "StateSampler",
    "UniformStateSampler",
    "__version__",
    "consolidation_loss",
]
