"""An environment of your own: a Gymnasium class, its id, and a training with logs and checkpoints.

Run it as ``python examples/own_environment.py``. From the folder of this file, the command line
does the same: ``medqn train gym --task own_environment:Corridor-v0 --algo medqn-u --steps 10000``.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from medqn_tianshou.experiments.gymnasium import GYM
from medqn_tianshou.training.options import RunOptions

STEPS = 10_000


class Corridor(gym.Env):
    """Walk to the door, which is at a random place; each step costs 1."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)  # where you and the door are
    action_space = gym.spaces.Discrete(2)  # left, right

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Start an episode."""
        super().reset(seed=seed)
        self.place, self.door = 10, int(self.np_random.integers(21))
        return self._observe(), {}

    def step(self, action: int):
        """Walk one step."""
        self.place = min(max(self.place + (1 if action else -1), 0), 20)
        return self._observe(), -1.0, self.place == self.door, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.place, self.door], np.float32) / 20

    # With these two methods, an interrupted run resumes exactly, also within an episode.

    def game_state(self) -> dict[str, Any]:
        """Return all that later play depends on, except the random generator."""
        return {"place": self.place, "door": self.door}

    def set_game_state(self, state: dict[str, Any]) -> None:
        """Continue from what `game_state` returned."""
        self.place, self.door = state["place"], state["door"]


gym.register("Corridor-v0", entry_point=Corridor, max_episode_steps=100)

if __name__ == "__main__":
    settings = GYM.settings("Corridor-v0", algo="medqn-u", steps=STEPS)
    training = GYM.make_training(settings, RunOptions(logdir=Path("log")))
    summary = training.run()
    print(summary.text(str(training.run_folder.path)))
