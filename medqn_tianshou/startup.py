"""Prepares the process of a command or script, before torch and Tianshou are imported."""

import os
import sys

ENVIRONMENT = {
    # OpenMP's threads wait for each other in a loop, for milliseconds. Where other processes need
    # the cores, a training on two threads then falls to a fraction of its speed; with short loops
    # it keeps its share (python -m benchmarks.speed --parts contention).
    "GOMP_SPINCOUNT": "10000",
}


def prepare_process() -> None:
    """Set what libraries read once, when they are loaded; what the user has set stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Tianshou imports it wherever it is installed, and then it captures the console.
    sys.modules.setdefault("wandb", None)  # type: ignore[arg-type]
