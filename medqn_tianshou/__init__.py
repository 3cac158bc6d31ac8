"""MeDQN for Tianshou: deep Q-learning that learns as well on a small memory.

Each public name is imported when it is first used, so that ``import medqn_tianshou`` itself loads
neither torch nor Tianshou.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from medqn_tianshou.version import __version__

if TYPE_CHECKING:
    from medqn_tianshou.algorithm.adaptive import AdaptiveCoefficient, relative_drift
    from medqn_tianshou.algorithm.distances import categorical_kl_loss, wasserstein_loss
    from medqn_tianshou.algorithm.distributional import (
        MeC51Policy,
        MeIQNPolicy,
        MeQRDQNPolicy,
        MeRainbowPolicy,
    )
    from medqn_tianshou.algorithm.heads import (
        CategoricalNetwork,
        ImplicitQuantileNetwork,
        QuantileNetwork,
    )
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
    from medqn_tianshou.fast.optimizers import FusedRMSprop
    from medqn_tianshou.fast.policy import FastMeDQNPolicy
    from medqn_tianshou.replay import (
        CompactPrioritizedVectorReplayBuffer,
        CompactVectorReplayBuffer,
        ReplayFileError,
    )
    from medqn_tianshou.replay.reservoir import ReservoirStateSampler
    from medqn_tianshou.replay.tianshou_buffers import seed_replay_buffer
    from medqn_tianshou.startup import prepare_process
    from medqn_tianshou.training.highlevel import (
        MeDQNAgentFactory,
        MeDQNExperimentBuilder,
        MeDQNParams,
    )
    from medqn_tianshou.training.memory import MemoryMonitor

__all__ = [
    "AdaptiveCoefficient",
    "CategoricalNetwork",
    "CompactPrioritizedVectorReplayBuffer",
    "CompactVectorReplayBuffer",
    "ConstantSchedule",
    "FastMeDQNPolicy",
    "FusedRMSprop",
    "ImplicitQuantileNetwork",
    "LeanCollector",
    "LinearSchedule",
    "MLPQNetwork",
    "MeC51Policy",
    "MeDQNAgentFactory",
    "MeDQNExperimentBuilder",
    "MeDQNParams",
    "MeDQNPolicy",
    "MeDQNTrainingStats",
    "MeIQNPolicy",
    "MeQRDQNPolicy",
    "MeRainbowPolicy",
    "MemoryMonitor",
    "MinAtarQNetwork",
    "MixedStateSampler",
    "NatureQNetwork",
    "OverlappingCollector",
    "QuantileNetwork",
    "RealStateSampler",
    "ReplayFileError",
    "ReservoirStateSampler",
    "StateSampler",
    "UniformStateSampler",
    "__version__",
    "categorical_kl_loss",
    "consolidation_loss",
    "prepare_process",
    "relative_drift",
    "seed_replay_buffer",
    "wasserstein_loss",
]

_MODULES = {
    "algorithm.adaptive": ("AdaptiveCoefficient", "relative_drift"),
    "algorithm.distances": ("categorical_kl_loss", "wasserstein_loss"),
    "algorithm.distributional": (
        "MeC51Policy",
        "MeIQNPolicy",
        "MeQRDQNPolicy",
        "MeRainbowPolicy",
    ),
    "algorithm.heads": ("CategoricalNetwork", "ImplicitQuantileNetwork", "QuantileNetwork"),
    "algorithm.loss": ("consolidation_loss",),
    "algorithm.networks": ("MinAtarQNetwork", "MLPQNetwork", "NatureQNetwork"),
    "algorithm.policy": ("MeDQNPolicy", "MeDQNTrainingStats"),
    "algorithm.samplers": (
        "MixedStateSampler",
        "RealStateSampler",
        "StateSampler",
        "UniformStateSampler",
    ),
    "algorithm.schedules": ("ConstantSchedule", "LinearSchedule"),
    "collecting.lean": ("LeanCollector",),
    "collecting.overlapping": ("OverlappingCollector",),
    "fast.optimizers": ("FusedRMSprop",),
    "fast.policy": ("FastMeDQNPolicy",),
    "replay": (
        "CompactPrioritizedVectorReplayBuffer",
        "CompactVectorReplayBuffer",
        "ReplayFileError",
    ),
    "replay.reservoir": ("ReservoirStateSampler",),
    "replay.tianshou_buffers": ("seed_replay_buffer",),
    "startup": ("prepare_process",),
    "training.highlevel": ("MeDQNAgentFactory", "MeDQNExperimentBuilder", "MeDQNParams"),
    "training.memory": ("MemoryMonitor",),
}
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Gymnasium registers our environments itself when it is imported: pyproject.toml names an entry
# point. This covers a checkout that is not installed. Gymnasium is not imported for it, as that
# also loads every other plugin.
if "gymnasium" in sys.modules:
    from medqn_tianshou.envs.registration import register_envs

    register_envs()
