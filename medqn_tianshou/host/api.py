"""What the package needs of Tianshou, from the module for the installed version."""

from typing import TYPE_CHECKING

from medqn_tianshou.host import TIANSHOU

if TYPE_CHECKING or TIANSHOU == 1:
    from medqn_tianshou.host.tianshou1 import (
        ACTING,
        EVALUATING,
        UPDATING,
        Agent,
        Logger,
        MeDQNTrainingStats,
        Policy,
        Trainer,
        explore,
        make_agent,
    )
    from medqn_tianshou.host.tianshou1_heads import HEADS
else:
    from medqn_tianshou.host.tianshou2 import (
        ACTING,
        EVALUATING,
        HEADS,
        UPDATING,
        Agent,
        Logger,
        MeDQNTrainingStats,
        Policy,
        Trainer,
        explore,
        make_agent,
    )

__all__ = [
    "ACTING",
    "EVALUATING",
    "HEADS",
    "UPDATING",
    "Agent",
    "Logger",
    "MeDQNTrainingStats",
    "Policy",
    "Trainer",
    "explore",
    "make_agent",
]
