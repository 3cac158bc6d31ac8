"""The process of a run of Figure 2: that of a sweep, which also logs the greedy action."""

import sys
from collections.abc import Sequence
from pathlib import Path

from medqn_tianshou.commands.sweep import guarded
from medqn_tianshou.experiments.forgetting import GreedyActionLog


def main(arguments: Sequence[str]) -> int:
    """Resume or start the run.

    :param arguments: the file for the log, and the arguments of the run.
    """
    log, *of_run = arguments
    return guarded.main(of_run, watch_policy=GreedyActionLog(Path(log)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
