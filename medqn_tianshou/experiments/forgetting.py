"""Figure 2: the greedy action of one MountainCar state over training, and when it changes."""

import csv
from pathlib import Path
from typing import IO

import numpy as np
import torch

from medqn_tianshou.files.atomic import write_text_atomically
from medqn_tianshou.host.api import Agent

STATE = np.array([[-0.70167243, 0.04185214]], dtype=np.float32)
Changes = list[tuple[int, int]]
"""The environment steps at which the greedy action changed, and the new actions."""


class GreedyActionLog:
    """Appends each change of the greedy action to a file, to be called before every collect.

    The first call of a resumed run drops what an earlier process logged after the checkpoint.

    :param path: a CSV file without header: environment step, action.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._action: int | None = None
        self._file: IO[str] | None = None

    def __call__(self, policy: Agent, env_step: int) -> None:
        """Log the greedy action if it has changed."""
        self._file = self._file or self._open(env_step)
        with torch.no_grad():
            action = int(policy.model(STATE)[0].argmax())
        if action != self._action:
            self._action = action
            self._file.write(f"{env_step},{action}\n")

    def _open(self, env_step: int) -> IO[str]:
        before = read_changes(self._path) if self._path.exists() else []
        kept = [change for change in before if change[0] < env_step]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{step},{action}\n" for step, action in kept)
        write_text_atomically(self._path, text)
        self._action = kept[-1][1] if kept else None
        return self._path.open("a", buffering=1)  # by lines: a killed process loses none


def read_changes(path: Path) -> Changes:
    """Read what :class:`GreedyActionLog` wrote."""
    with path.open(newline="") as file:
        return [(int(step), int(action)) for step, action in csv.reader(file)]
