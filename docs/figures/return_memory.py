"""Draw return_memory.png: scores on Atari against memory, from the results in this repository.

Run it as ``python -m docs.figures.return_memory``. The runs are those of ``campaign/results/B``,
the published scores those of ``docs/data``, and the bytes of a transition of Tianshou's buffer
those of ``docs/results/memory``.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from medqn_tianshou.commands.report.curves import Array
from medqn_tianshou.commands.report.published import MARK_STEPS, all_published_marks, score_at
from medqn_tianshou.commands.report.runs import RecordedRun, find_runs, read_run
from medqn_tianshou.commands.report.style import OWN_COLOURS, STYLE, WITH_SEPARATORS
from medqn_tianshou.training.memory import MB, format_bytes

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "campaign/results/B/NameThisGameNoFrameskip-v4"
MEMORY = HERE.parent / "results/memory/memory.json"
ALGORITHMS = ("MeDQN(R)", "DQN")
PUBLISHED = (("MeDQN(R)", 100_000), ("DQN", 100_000), ("DQN", 1_000_000))
BAR: Any = {"fmt": "s", "markerfacecolor": "white", "markersize": 6, "capsize": 3, "linewidth": 1.2}
APART = {"MeDQN(R)": 0.93, "DQN": 1.08}
"""Factors that keep marks of the same size or step from hiding each other."""


def read_runs() -> list[RecordedRun]:
    """Read our runs."""
    return [read_run(path) for path in find_runs(RUNS)]


def latest_mark(runs: list[RecordedRun]) -> float:
    """Return the last published mark that at least one run of each algorithm has reached."""
    reached = [
        max(run.env_steps for run in runs if run.algorithm == algorithm) for algorithm in ALGORITHMS
    ]
    steps = all_published_marks(runs[0].task, "DQN", 100_000)[:, 0]
    return float(steps[steps <= min(reached)].max())


def raw_bytes(transitions: int) -> float:
    """Return the memory of a buffer as in the published runs, Tianshou's own."""
    peers = json.loads(MEMORY.read_text())["parts"]["peers"]["measured"]
    return float(
        transitions * peers["bytes_per_transition"]["Tianshou, as its Atari example uses it"]
    )


def draw_published(axis: Any, x: float, mark: Array, algorithm: str, label: str = "") -> None:
    """Draw a median and its range."""
    _, median, low, high = mark
    ends = [[median - low], [high - median]]
    axis.errorbar(x, median, yerr=ends, color=OWN_COLOURS[algorithm], label=label, **BAR)


def draw_curves(axis: Any, runs: list[RecordedRun]) -> None:
    """Draw each run, and the published scores of the same algorithms and buffers."""
    for algorithm in ALGORITHMS:
        seeds = [run for run in runs if run.algorithm == algorithm]
        for run in seeds:
            steps = [step for step, _ in run.evaluations if step >= MARK_STEPS]
            scores = [score_at(run, step) for step in steps]
            label = f"{algorithm}: our runs" if run is seeds[0] else ""
            axis.plot(steps, scores, color=OWN_COLOURS[algorithm], linewidth=1.5, label=label)
        last = max(run.env_steps for run in runs)
        published = all_published_marks(runs[0].task, algorithm, 100_000)
        for mark in published[published[:, 0] <= last]:
            label = f"{algorithm}: published" if mark[0] == published[0, 0] else ""
            draw_published(axis, mark[0] * APART[algorithm] ** 0.3, mark, algorithm, label)
    axis.legend(frameon=False, loc="upper left")
    axis.set(xlabel="environment steps", title="NameThisGame, 100,000 transitions", ylabel="score")
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda steps, _: f"{steps / 1e6:g}M" if steps else "0")
    )


def draw_memory(axis: Any, runs: list[RecordedRun], mark: float) -> None:
    """Draw the scores at the mark against the memory of the replay buffer."""
    reached = [run for run in runs if run.env_steps >= mark]
    for algorithm in ALGORITHMS:
        seeds = [run for run in reached if run.algorithm == algorithm]
        sizes = [run.buffer_mb * MB * APART[algorithm] for run in seeds]
        scores = [score_at(run, mark) for run in seeds]
        axis.scatter(sizes, scores, 34, color=OWN_COLOURS[algorithm], zorder=3)
    own = MB * float(np.mean([run.buffer_mb for run in reached]))
    _name(axis, own, "100,000 transitions\ncompressed, our runs")
    for algorithm, transitions in PUBLISHED:
        marks = all_published_marks(runs[0].task, algorithm, transitions)
        is_alone = transitions > PUBLISHED[0][1]
        x = raw_bytes(transitions) * (1 if is_alone else APART[algorithm])
        draw_published(axis, x, marks[marks[:, 0] == mark][0], algorithm)
    for transitions in {transitions: None for _, transitions in PUBLISHED}:
        _name(axis, raw_bytes(transitions), f"{transitions:,}\npublished")
    axis.set(xscale="log", xlim=(4e6, 2e10), xlabel="replay memory")
    axis.set_title(f"Score at {mark / 1e6:g} million steps")
    axis.set_xticks([1e7, 1e8, 1e9, 1e10], ["10 MB", "100 MB", "1 GB", "10 GB"])
    axis.minorticks_off()


def _name(axis: Any, nbytes: float, text: str) -> None:
    """Describe the buffers of one size, at the bottom."""
    text = f"{text}\n{format_bytes(round(nbytes))}"
    place = axis.get_xaxis_transform()
    axis.text(nbytes, 0.03, text, ha="center", va="bottom", fontsize=8, transform=place)


def main() -> None:
    """Draw the figure."""
    runs = read_runs()
    mark = latest_mark(runs)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.8), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        draw_curves(axes[0], runs)
        draw_memory(axes[1], runs, mark)
        for axis in axes:
            axis.yaxis.set_major_formatter(WITH_SEPARATORS)
            axis.set_ylim(0, None)
        note = "Lines and dots: our runs, one per seed. Squares: published median, lowest and "
        note += "highest of 5 seeds. A score is the mean over the evaluations of 250,000 steps."
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#666666")
        figure.savefig(HERE / "return_memory.png", dpi=150)


if __name__ == "__main__":
    main()
