"""Figure 2: the greedy action of one MountainCar state over training, and how often it changes.

Each algorithm is trained as by lowdim.py, with the paper's settings. Example:

  %(prog)s --seeds 1 --jobs 2
"""

import csv
import io
import json
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch

from medqn_tianshou.algorithm.policy import MeDQNPolicy
from medqn_tianshou.commands.curves import mean_and_error
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.experiments.lowdim import LOWDIM
from medqn_tianshou.training.options import RunOptions

STATE = np.array([[-0.70167243, 0.04185214]], dtype=np.float32)
LABELS = {"dqn": "DQN", "dqn-s": "DQN(S)", "medqn-u": "MeDQN(U)"}
Changes = list[tuple[int, int]]
"""The environment steps at which the greedy action became another, and which."""


def greedy_action_changes(algo: str, seed: int, steps: int | None) -> tuple[Changes, Any]:
    """Train, and watch the greedy action of the state after every update.

    :param algo: an algorithm of the script.
    :param seed: the run's seed.
    :param steps: environment steps; None is the paper's.
    :return: the changes, and the run's record.
    """
    torch.set_num_threads(1)
    changes: Changes = []

    def watch(policy: MeDQNPolicy, env_step: int) -> None:
        with torch.no_grad():
            action = int(policy.model(STATE)[0].argmax())
        if not changes or changes[-1][1] != action:
            changes.append((env_step, action))

    with tempfile.TemporaryDirectory() as folder:
        overrides: dict[str, Any] = {} if steps is None else {"steps": steps}
        settings = LOWDIM.settings(algo=algo, seed=seed, **overrides)
        options = RunOptions(logdir=Path(folder), show_progress=False)
        with redirect_stdout(io.StringIO()):
            LOWDIM.make_training(settings, options, watch_policy=watch).run()
        (config,) = Path(folder).glob("**/config.json")
        record = json.loads(config.read_text())
        record["summary"] = json.loads((config.parent / "summary.json").read_text())
    return changes, record


def draw(path: Path, changes: dict[str, Changes], env_steps: int) -> None:
    """Draw the greedy action over environment steps, a panel per algorithm.

    :param path: the PNG to write.
    :param changes: the changes of one run of each algorithm.
    :param env_steps: the length of the runs.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(changes), 1, sharex=True, figsize=(8, 4.2))
    for axis, (algo, points) in zip(axes, changes.items(), strict=True):
        steps = [step for step, _ in points] + [env_steps]
        actions = [action for _, action in points] + [points[-1][1]]
        axis.step(steps, actions, where="post", linewidth=0.8, color="#1f6fb4")
        axis.set(ylim=(-0.3, 2.3), yticks=[0, 1, 2], ylabel="greedy action")
        axis.set_title(f"{LABELS[algo]}: {len(points) - 1} changes", fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("environment steps")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def table(counts: dict[str, list[int]]) -> str:
    """Tabulate how often the action changed."""
    lines = ["| | changes of the greedy action: mean ± standard error | runs |", "|---|---|---|"]
    for algo, values in counts.items():
        mean, error = mean_and_error(np.array(values, dtype=float))
        lines.append(f"| {LABELS[algo]} | {mean:.0f} ± {error:.0f} | {len(values)} |")
    return "\n".join(lines)


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line.

    :param prog: the command that the user typed; None is the script's name.
    """
    parser = Parser(prog=prog, description=__doc__)
    count = number(int, at_least=1)
    parser.add_argument("--seeds", type=count, default=1, help="runs per algorithm (default: 1)")
    parser.add_argument(
        "--steps", "--budget", type=count, help="env steps per run (default: the paper's)"
    )
    parser.add_argument("--jobs", type=count, default=1, help="runs at a time (default: 1)")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/results/fig2"), help="where to write"
    )
    return parser


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line; None takes the process's.
    :param prog: the command that the user typed; None is the script's name.
    """
    args = make_parser(prog).parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)

    runs = [(algo, seed, args.steps) for algo in LABELS for seed in range(args.seeds)]
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(greedy_action_changes, *zip(*runs, strict=True)))
    with (args.out / "changes.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["algo", "seed", "env_step", "action"])
        for (algo, seed, _), (changes, _) in zip(runs, results, strict=True):
            writer.writerows([algo, seed, *change] for change in changes)

    counts: dict[str, list[int]] = {}
    for (algo, _, _), (changes, _) in zip(runs, results, strict=True):
        counts.setdefault(algo, []).append(len(changes) - 1)
    first = {algo: c for (algo, seed, _), (c, _) in zip(runs, results, strict=True) if seed == 0}
    record = results[0][1]
    draw(args.out / "fig2.png", first, record["summary"]["env_steps"])
    versions = record["versions"]
    text = f"""# Figure 2: forgetting in MountainCar-v0

The greedy action at the state {STATE[0].tolist()}, watched after every update. The paper calls
action 1 optimal there; a method that forgets changes its mind again and again.

{table(counts)}

![Greedy action over training, seed 0](fig2.png)

Command: `python lowdim/forgetting.py --seeds {args.seeds}`. Every change of every run is in
`changes.csv`. Versions: Python {versions["python"]}, tianshou {versions["tianshou"]}, torch
{versions["torch"]}. Machine: {record["hardware"]["cpu"]}, one thread per run.
"""
    (args.out / "README.md").write_text(text)
    print(text)
    return 0
