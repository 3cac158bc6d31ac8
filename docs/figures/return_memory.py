"""Draw return_memory.png: the return that replay memory buys, from the results in this repository.

Run it as ``python docs/figures/return_memory.py``. The returns are those of ``docs/results/fig4a``
and ``fig4b``, the bytes of Atari transitions those of ``docs/results/memory``.
"""

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np

from medqn_tianshou.curves import final_returns, mean_and_error, read_curve

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
COLOURS = {"DQN": "#8c8c8c", "DQN(S)": "#d98c5f", "MeDQN(U)": "#1f6fb4"}
TASKS = {"fig4a": "MountainCar", "fig4b": "Acrobot"}


def read_line(figure: str, label: str) -> tuple[float, np.ndarray, int]:
    """Read replay bytes, final returns and buffer size of the runs of a line."""
    slug = label.replace("(", "_").replace(")", "")
    curves, record = [], {}
    for path in sorted((RESULTS / figure / "raw").glob(f"{slug}_seed*.json")):
        record = json.loads(path.read_text())
        window = record["settings"]["return_window"]["value"]
        env_steps = record["summary"]["env_steps"]
        curves.append(read_curve(path.with_suffix(".csv"), window, env_steps))
    nbytes = 1e6 * record["summary"]["buffer_mb"]
    return nbytes, final_returns(curves), record["settings"]["buffer_size"]["value"]


def draw_task(axis: plt.Axes, figure: str) -> None:
    """Draw the final returns of a task over the bytes of its replay."""
    count = 0
    for label, colour in COLOURS.items():
        nbytes, returns, size = read_line(figure, label)
        count = len(returns)
        mean, error = mean_and_error(returns)
        shown = {"color": colour, "markersize": 8, "capsize": 4, "linewidth": 1.6}
        axis.errorbar(nbytes, mean, yerr=2 * error, marker="o", **shown)
        spread = (np.arange(count) - (count - 1) / 2) / max(count, 1)
        axis.scatter(nbytes * 1.35 ** (0.6 + spread), returns, s=9, color=colour, alpha=0.45)
        below = label == "DQN"  # at the right edge
        axis.annotate(
            f"{label}\n{size:,} transitions",
            (nbytes, mean),
            xytext=(0, -12) if below else (18, 0),
            textcoords="offset points",
            ha="center" if below else "left",
            va="top" if below else "center",
            color=colour,
            fontsize=8.5,
        )
    axis.set(xscale="log", xlim=(7e2, 5e6), xlabel="replay memory")
    axis.set_xticks([1e3, 1e4, 1e5, 1e6], ["1 kB", "10 kB", "100 kB", "1 MB"])
    axis.set_title(f"{TASKS[figure]}, {count} seeds")
    axis.margins(y=0.12)


def draw_bytes(axis: plt.Axes) -> None:
    """Draw what a million Atari transitions take."""
    parts = json.loads((RESULTS / "memory/memory.json").read_text())["parts"]
    raw = parts["peers"]["measured"]["bytes_per_transition"]
    games = parts["bytes"]["measured"]["bytes_per_transition"]
    mean = np.mean([game["random"] for game in games.values()])
    rows = [
        (
            "Stable-Baselines3, optimized (computed)",
            raw["Stable-Baselines3, `optimize_memory_usage`"],
            COLOURS["DQN"],
        ),
        ("Tianshou", raw["Tianshou, as its Atari example uses it"], COLOURS["DQN"]),
        ("compact, mean of 5 games", mean, COLOURS["MeDQN(U)"]),
        ("compact, Qbert", games["Qbert"]["random"], COLOURS["MeDQN(U)"]),
    ]
    for place, (label, nbytes, colour) in enumerate(rows):
        gigabytes = nbytes * 1e6 / 1e9
        axis.barh(-place, gigabytes, color=colour, height=0.5)
        axis.text(gigabytes * 1.15, -place, f"{gigabytes:.3g} GB", va="center")
        axis.text(0.032, -place + 0.29, label, va="bottom", fontsize=8.5)
    axis.set(xscale="log", xlim=(0.03, 200), ylim=(-3.5, 0.8), yticks=[])
    axis.set(title="1,000,000 Atari transitions", xlabel="replay memory")
    axis.set_xticks([0.1, 1, 10, 100], ["0.1 GB", "1 GB", "10 GB", "100 GB"])


def main() -> None:
    """Draw the figure."""
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.1))
    for axis, name in zip(axes, TASKS, strict=False):
        draw_task(axis, name)
    axes[0].set_ylabel("final return")
    draw_bytes(axes[2])
    figure.tight_layout()
    figure.savefig(HERE / "return_memory.png", dpi=110)


if __name__ == "__main__":
    main()
