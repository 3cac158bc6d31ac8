"""MeDQN for Tianshou: deep Q-learning with a small replay buffer.

Each public name is imported when it is first used, so that ``import medqn_tianshou`` itself loads
neither torch nor Tianshou.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from medqn_tianshou.host import TIANSHOU
from medqn_tianshou.version import __version__

if TYPE_CHECKING:
    from medqn_tianshou.algorithm.adaptive import AdaptiveCoefficient, relative_drift
    from medqn_tianshou.algorithm.distances import categorical_kl_loss, wasserstein_loss
    from medqn_tianshou.algorithm.heads import (
        CategoricalNetwork,
        ImplicitQuantileNetwork,
        QuantileNetwork,
    )
    from medqn_tianshou.algorithm.loss import consolidation_loss
    from medqn_tianshou.algorithm.networks import MinAtarQNetwork, MLPQNetwork, NatureQNetwork
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
    from medqn_tianshou.fast.policy import FastMeDQN, FastMeDQNPolicy
    from medqn_tianshou.host.api import MeDQNTrainingStats
    from medqn_tianshou.host.tianshou1 import MeDQNPolicy
    from medqn_tianshou.host.tianshou1_heads import (
        MeC51Policy,
        MeIQNPolicy,
        MeQRDQNPolicy,
        MeRainbowPolicy,
    )
    from medqn_tianshou.host.tianshou2 import MeDQN
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
    "FastMeDQN",
    "FastMeDQNPolicy",
    "FusedRMSprop",
    "ImplicitQuantileNetwork",
    "LeanCollector",
    "LinearSchedule",
    "MLPQNetwork",
    "MeC51Policy",
    "MeDQN",
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
    "algorithm.heads": ("CategoricalNetwork", "ImplicitQuantileNetwork", "QuantileNetwork"),
    "algorithm.loss": ("consolidation_loss",),
    "algorithm.networks": ("MinAtarQNetwork", "MLPQNetwork", "NatureQNetwork"),
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
    "host.api": ("MeDQNTrainingStats",),
    "replay": (
        "CompactPrioritizedVectorReplayBuffer",
        "CompactVectorReplayBuffer",
        "ReplayFileError",
    ),
    "replay.reservoir": ("ReservoirStateSampler",),
    "replay.tianshou_buffers": ("seed_replay_buffer",),
    "startup": ("prepare_process",),
    "training.memory": ("MemoryMonitor",),
}
_MODULES_BY_HOST: dict[int, dict[str, tuple[str, ...]]] = {
    1: {
        "fast.policy": ("FastMeDQNPolicy",),
        "host.tianshou1": ("MeDQNPolicy",),
        "host.tianshou1_heads": (
            "MeC51Policy",
            "MeIQNPolicy",
            "MeQRDQNPolicy",
            "MeRainbowPolicy",
        ),
        "training.highlevel": ("MeDQNAgentFactory", "MeDQNExperimentBuilder", "MeDQNParams"),
    },
    2: {"fast.policy": ("FastMeDQN",), "host.tianshou2": ("MeDQN",)},
}
"""Names that only one major version of Tianshou has."""
_MODULES |= _MODULES_BY_HOST[TIANSHOU]
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
_COUNTERPARTS = {
    "MeDQNPolicy": "MeDQN",
    "FastMeDQNPolicy": "FastMeDQN",
    **dict.fromkeys(_MODULES_BY_HOST[1]["training.highlevel"], "MeDQN with OffPolicyTrainer"),
    **dict.fromkeys(_MODULES_BY_HOST[1]["host.tianshou1_heads"], "MeDQN"),
}
if TIANSHOU == 1:
    _COUNTERPARTS = {"MeDQN": "MeDQNPolicy", "FastMeDQN": "FastMeDQNPolicy"}
"""Names of the other version, and what to use here instead."""
for _name in _COUNTERPARTS:
    __all__.remove(_name)


def __getattr__(name: str) -> Any:
    if name in _COUNTERPARTS:
        raise ImportError(
            f"{name} is for Tianshou {3 - TIANSHOU}; with the installed {TIANSHOU}, "
            f"use {_COUNTERPARTS[name]}"
        )
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
