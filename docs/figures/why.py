"""Draw why.png: what the paper's agents reached in five games, and the replay memory it took.

Run it as ``python docs/figures/why.py``. The returns are the published ones
(``docs/data/atari_published.csv``); the bytes are what Tianshou's buffer takes for that many
transitions, as this package predicts and its tests measure.
"""

import csv
from pathlib import Path

import matplotlib as mpl
import numpy as np
from tianshou.data import Batch, VectorReplayBuffer

from medqn_tianshou.replay.tianshou_buffers import predict_replay_nbytes

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
AGENTS = {
    "DQN m=1e6": ("DQN, 1,000,000 transitions", 1_000_000, "#8c8c8c"),
    "DQN m=1e5": ("DQN, 100,000", 100_000, "#d98c5f"),
    "MeDQN(R) m=1e5": ("MeDQN(R), 100,000", 100_000, "#1f6fb4"),
}


def replay_gigabytes(size: int) -> float:
    """Bytes of a full raw Atari buffer, in GB."""
    example = Batch(
        obs=np.zeros((1, 4, 84, 84), np.uint8),
        act=np.zeros(1, np.int64),
        rew=np.zeros(1),
        terminated=np.zeros(1, bool),
        truncated=np.zeros(1, bool),
    )
    options = {"stack_num": 4, "ignore_obs_next": True, "save_only_last_obs": True}
    return predict_replay_nbytes(lambda n: VectorReplayBuffer(n, 1, **options), example, size) / 1e9


def main() -> None:
    """Draw the figure."""
    with (HERE.parent / "data/atari_published.csv").open() as file:
        rows = list(csv.DictReader(file))
    games = ["name_this_game", "phoenix", "qbert", "battle_zone", "double_dunk"]
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 6, figsize=(13, 2.7), width_ratios=[1.1, 1, 1, 1, 1, 1])
    bar = axes[0]
    for place, (label, size, colour) in enumerate(AGENTS.values()):
        gigabytes = replay_gigabytes(size)
        bar.barh(-place, gigabytes, color=colour, height=0.6)
        bar.text(gigabytes + 0.1, -place, f"{gigabytes:.2f} GB", va="center")
        bar.text(0, -place + 0.34, label, va="bottom", fontsize=8)
    bar.set(title="replay memory", xlim=(0, 10), ylim=(-2.5, 0.8), yticks=[], xlabel="GB")
    for axis, game in zip(axes[1:], games, strict=True):
        for agent, (_, _, colour) in AGENTS.items():
            points = [row for row in rows if (row["game"], row["agent"]) == (game, agent)]
            steps = [int(row["env_steps"]) / 1e6 for row in points]
            low, middle, high = (
                [float(row[key]) for row in points] for key in ("lowest", "median", "highest")
            )
            axis.plot(steps, middle, color=colour, linewidth=1.6)
            axis.fill_between(steps, low, high, color=colour, alpha=0.13, linewidth=0)
        axis.set(title=game.replace("_", " ").title(), xlabel="env steps (million)")
        axis.tick_params(labelsize=7.5)
    axes[1].set_ylabel("evaluation return")
    figure.tight_layout()
    figure.savefig(HERE / "why.png", dpi=110)


if __name__ == "__main__":
    main()
