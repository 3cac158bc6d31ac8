"""Draw return_memory.png: the return that replay memory buys, from the results in this repository.

Run it as ``python docs/figures/return_memory.py``. The returns are those of ``docs/results/fig4a``
and ``fig4b``, the bytes of Atari transitions those of ``docs/results/memory``.
"""

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np

from medqn_tianshou.commands.report.curves import final_returns, mean_and_error
from medqn_tianshou.commands.report.runs import read_run
from medqn_tianshou.commands.report.style import OWN_COLOURS
from medqn_tianshou.training.memory import MB

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.transforms import offset_copy

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
COLOURS = {label: OWN_COLOURS[label] for label in ("DQN", "DQN(S)", "MeDQN(U)")}
TASKS = {"fig4a": "MountainCar", "fig4b": "Acrobot"}
BESIDE, DOT = 12, 5  # points: from a mean to its runs, and from dot to dot


def read_line(figure: str, label: str) -> tuple[float, np.ndarray, int]:
    """Read replay bytes, final returns and buffer size of the runs of a line."""
    slug = label.replace("(", "_").replace(")", "")
    runs = [read_run(path) for path in (RESULTS / figure / "raw").glob(f"{slug}_seed*.json")]
    nbytes = runs[0].buffer_mb * MB  # the same in all runs of a line
    returns = final_returns(run.curve("train", None) for run in runs)
    return nbytes, returns, runs[0].value("buffer_size")


def draw_runs(axis: plt.Axes, nbytes: float, returns: np.ndarray, colour: str) -> int:
    """Draw each run as a dot beside its mean, equal ones in a row; return the longest row."""
    low, high = axis.get_ylim()
    rows: dict[int, int] = {}
    for value in sorted(returns):
        height = round((value - low) / (high - low) * 42)  # dots of one row would cover each other
        place = rows[height] = rows.get(height, 0) + 1
        right = BESIDE + DOT * (place - 1)
        beside = offset_copy(axis.transData, axis.figure, right, units="points")
        axis.plot(nbytes, value, ".", color=colour, alpha=0.6, markersize=5, transform=beside)
    return max(rows.values())


def draw_task(axis: plt.Axes, figure: str) -> None:
    """Draw the final returns of a task over the bytes of its replay."""
    lines = {label: read_line(figure, label) for label in COLOURS}
    everything = np.concatenate([returns for _, returns, _ in lines.values()])
    room = 0.12 * np.ptp(everything)
    axis.set(xscale="log", xlim=(7e2, 5e6), ylim=(everything.min() - room, everything.max() + room))
    for label, (nbytes, returns, size) in lines.items():
        colour = COLOURS[label]
        mean, error = mean_and_error(returns)
        shown = {"color": colour, "markersize": 8, "capsize": 4, "linewidth": 1.6}
        axis.errorbar(nbytes, mean, yerr=2 * error, marker="o", **shown)
        dots = draw_runs(axis, nbytes, returns, colour)
        below = label == "DQN"  # at the right edge
        axis.annotate(
            f"{label}\n{size:,} transitions",
            (nbytes, mean),
            xytext=(6, -14) if below else (BESIDE + DOT * dots + 5, 0),
            textcoords="offset points",
            ha="center" if below else "left",
            va="top" if below else "center",
            color=colour,
        )
    axis.set_xlabel("replay memory")
    axis.set_xticks([1e3, 1e4, 1e5, 1e6], ["1 kB", "10 kB", "100 kB", "1 MB"])
    axis.set_title(f"{TASKS[figure]}, {len(returns)} seeds")


def draw_bytes(axis: plt.Axes) -> None:
    """Draw what a million Atari transitions take."""
    parts = json.loads((RESULTS / "memory/memory.json").read_text())["parts"]
    peers = parts["peers"]["measured"]
    raw = peers["bytes_per_transition"]
    computed = "" if peers["sb3_is_measured"] else " (computed)"
    games = parts["bytes"]["measured"]["bytes_per_transition"]
    mean = np.mean([game["random"] for game in games.values()])
    grey, blue = COLOURS["DQN"], COLOURS["MeDQN(U)"]
    rows = [
        (
            f"Stable-Baselines3, optimize_memory_usage{computed}",
            raw["Stable-Baselines3, `optimize_memory_usage`"],
            grey,
        ),
        ("Tianshou", raw["Tianshou, as its Atari example uses it"], grey),
        (f"compact (ours), mean of {len(games)} games", mean, blue),
        ("compact (ours), Qbert", games["Qbert"]["random"], blue),
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
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.1), layout="constrained")
    for axis, name in zip(axes, TASKS, strict=False):
        draw_task(axis, name)
    axes[0].set_ylabel("final return")
    draw_bytes(axes[2])
    for axis in axes:
        axis.minorticks_off()
    figure.get_layout_engine().set(wspace=0.06)
    note = "Large: mean and two standard errors. Small: the runs, beside the memory they all have."
    figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color="#666666")
    figure.savefig(HERE / "return_memory.png", dpi=110)


if __name__ == "__main__":
    main()
