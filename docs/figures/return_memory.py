"""Draw return_memory.png: final return against replay memory, from the results in this repository.

Run it as ``python -m docs.figures.return_memory``. The returns come from ``campaign/results``, the
bytes of Atari transitions from ``docs/results/memory``.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from medqn_tianshou.commands.report.curves import Array, final_returns
from medqn_tianshou.commands.report.runs import find_runs, read_run
from medqn_tianshou.commands.report.statistics import mean_interval
from medqn_tianshou.commands.report.style import OWN_COLOURS, STYLE, WITH_SEPARATORS, swarm
from medqn_tianshou.training.memory import MB, format_bytes

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "campaign/results/A1"
MEMORY = HERE.parent / "results/memory/memory.json"
ALGORITHMS = {"dqn": "DQN", "medqn-u": "MeDQN(U)", "dqn-s": "DQN(S)"}
TASKS = ("MountainCar-v0", "Acrobot-v1")


def read_line(task: str, algo: str) -> tuple[str, Array]:
    """Read replay size and final returns of the runs of an algorithm."""
    runs = [read_run(path) for path in find_runs(RUNS / task / algo)]
    nbytes = format_bytes(round(runs[0].buffer_mb * MB))  # the same in all runs
    size = f"{runs[0].value('buffer_size'):,} transitions, {nbytes}"
    return size, np.sort(final_returns(run.curve("train", None) for run in runs))


def draw_task(axis: Any, task: str) -> None:
    """Draw a row per algorithm: its runs, and below them their mean and its interval."""
    lines = {algo: read_line(task, algo) for algo in ALGORITHMS}
    everything = np.concatenate([returns for _, returns in lines.values()])
    low, high = everything.min(), everything.max()
    for row, (algo, (size, returns)) in enumerate(lines.items()):
        colour = OWN_COLOURS[ALGORITHMS[algo]]
        axis.text(low, row - 0.34, f"{ALGORITHMS[algo]}: {size}", color=colour)
        heights = row - 0.045 * swarm(returns, low, high)
        axis.scatter(returns, heights, 11, color=colour, alpha=0.6, linewidth=0)
        mean, interval = returns.mean(), mean_interval(returns, 2000, 0)
        ends = np.abs(np.array(interval) - mean)[:, None]
        look = {"markerfacecolor": "white", "markersize": 6, "capsize": 3, "linewidth": 1.5}
        axis.errorbar(mean, row + 0.27, xerr=ends, fmt="o", color=colour, **look)
    axis.set(title=f"{task.split('-')[0]}, {len(returns)} seeds", xlabel="final return")
    axis.xaxis.set_major_formatter(WITH_SEPARATORS)
    axis.set_ylim(2.5, -0.62)


def draw_bytes(axis: Any) -> None:
    """Draw the size of a million Atari transitions, without the colours of algorithms."""
    parts = json.loads(MEMORY.read_text())["parts"]
    peers = parts["peers"]["measured"]
    raw = peers["bytes_per_transition"]
    computed = " (computed)" * (not peers["sb3_is_measured"])
    games = parts["bytes"]["measured"]["bytes_per_transition"]
    mean = np.mean([game["random"] for game in games.values()])
    sb3 = raw["Stable-Baselines3, `optimize_memory_usage`"]
    rows = [
        (f"Stable-Baselines3{computed}", sb3, "white"),
        ("Tianshou", raw["Tianshou, as its Atari example uses it"], "white"),
        (f"compact (ours), {len(games)}-game mean", mean, "black"),
        ("compact (ours), Qbert", games["Qbert"]["random"], "black"),
    ]
    for row, (label, nbytes, fill) in enumerate(rows):
        gigabytes = nbytes * 1e6 / 1e9
        axis.plot(gigabytes, row, "o", color="black", markerfacecolor=fill, markersize=6)
        axis.text(0.05, row - 0.3, f"{label}: {gigabytes:.3g} GB")
    axis.set(xscale="log", xlim=(0.045, 100), title="1,000,000 Atari transitions")
    axis.set_xlabel("replay memory")
    axis.set_xticks([0.1, 1, 10], ["0.1 GB", "1 GB", "10 GB"])
    axis.minorticks_off()
    axis.set_ylim(3.5, -0.75)


def main() -> None:
    """Draw the figure."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        axes = figure.subplots(1, 3)
        for axis, task in zip(axes, TASKS, strict=False):
            draw_task(axis, task)
        draw_bytes(axes[2])
        for axis in axes:
            axis.set_yticks([])
            axis.spines["left"].set_visible(False)
        note = "Left, middle: dots are runs; open marks are means with 95% bootstrap intervals; "
        note += "higher returns are better."
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#666666")
        figure.savefig(HERE / "return_memory.png", dpi=150)


if __name__ == "__main__":
    main()
