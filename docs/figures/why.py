"""Draw why.png: the published returns in five games, and the replay memory of each agent.

Run it as ``python -m docs.figures.why``. The returns are the published ones
(``docs/data/atari_published.csv``); the bytes are those of Tianshou's buffer for that many
transitions, as this package predicts and its tests measure.
"""

import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from tianshou.data import Batch, VectorReplayBuffer

from medqn_tianshou.commands.report.style import OWN_COLOURS, STYLE, WITH_SEPARATORS
from medqn_tianshou.replay.tianshou_buffers import predict_replay_nbytes

HERE = Path(__file__).parent
AGENTS = {
    "DQN m=1e6": ("DQN, 1,000,000", 1_000_000, "DQN", "-"),
    "DQN m=1e5": ("DQN, 100,000", 100_000, "DQN", "--"),
    "MeDQN(R) m=1e5": ("MeDQN(R), 100,000", 100_000, "MeDQN(R)", "-"),
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


def draw_memory(axis: Any) -> None:
    """Draw the replay memory of each agent."""
    for row, (label, size, algorithm, line) in enumerate(AGENTS.values()):
        gigabytes, colour = replay_gigabytes(size), OWN_COLOURS[algorithm]
        axis.barh(row, gigabytes, color=colour, height=0.28, alpha=1 if line == "-" else 0.5)
        axis.text(0, row - 0.22, f"{label}: {gigabytes:.2f} GB", color=colour)
        axis.plot([6.3, 7.4], [row - 0.3] * 2, color=colour, linestyle=line, linewidth=1.7)
    axis.set(title="replay memory", xlim=(0, 7.5), ylim=(2.5, -0.6), yticks=[], xlabel="GB")
    axis.spines["left"].set_visible(False)


def draw_game(axis: Any, game: str, rows: list[dict[str, str]]) -> None:
    """Draw the published median of each agent, and the range of its seeds."""
    for agent, (_, _, algorithm, line) in AGENTS.items():
        points = [row for row in rows if (row["game"], row["agent"]) == (game, agent)]
        steps = [int(row["env_steps"]) / 1e6 for row in points]
        low, middle, high = (
            [float(row[key]) for row in points] for key in ("lowest", "median", "highest")
        )
        colour = OWN_COLOURS[algorithm]
        axis.plot(steps, middle, line, color=colour, linewidth=1.7)
        axis.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
    axis.set(title=game.title().replace("_", ""), xlabel="environment steps (million)")
    axis.yaxis.set_major_formatter(WITH_SEPARATORS)


def main() -> None:
    """Draw the figure."""
    with (HERE.parent / "data/atari_published.csv").open() as file:
        rows = list(csv.DictReader(file))
    games = ["name_this_game", "phoenix", "qbert", "battle_zone", "double_dunk"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 4.8), layout="constrained")
        first, *axes = figure.subplots(2, 3).ravel()
        draw_memory(first)
        for axis, game in zip(axes, games, strict=True):
            draw_game(axis, game, rows)
        for axis in (axes[0], axes[2]):
            axis.set_ylabel("evaluation return")
        note = "Lines: median of 5 seeds, each the mean of the evaluations in the 250,000 steps "
        note += "before a mark. Shaded: lowest to highest seed."
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#666666")
        figure.savefig(HERE / "why.png", dpi=130)


if __name__ == "__main__":
    main()
