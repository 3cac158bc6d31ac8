"""Figure 2: the greedy action of one MountainCar state over training, and how often it changes.

Each algorithm is trained as by `medqn train lowdim`, with the paper's settings. Example:

  %(prog)s --seeds 1 --jobs 2
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray

from medqn_tianshou.commands.figures import watched
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.report.curves import format_mean
from medqn_tianshou.commands.report.figure_page import describe_machine
from medqn_tianshou.commands.report.runs import PAPER_NAMES
from medqn_tianshou.commands.report.style import OWN_COLOURS, STYLE
from medqn_tianshou.commands.report.tables import table, write_csv
from medqn_tianshou.commands.reproduce import (
    add_figure_arguments,
    remove_runs,
    run_command,
    run_plans,
    with_length,
)
from medqn_tianshou.commands.sweep import attempts
from medqn_tianshou.commands.sweep.executors import LocalExecutor
from medqn_tianshou.commands.sweep.file import Sweep, read_sweep
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.experiments.figures import FOLDER, read_figure
from medqn_tianshou.experiments.forgetting import STATE, Changes, read_changes

FILE = FOLDER / "fig2.toml"
RETRIES = 2
CHECK_EVERY_ENV_STEPS = 8
"""DQN's C_current, the largest. An algorithm that updates more often could change more often."""
AllChanges = dict[str, list[Changes]]
"""The changes of each seed's run, by algorithm."""


class WatchedExecutor(LocalExecutor):
    """Processes of this machine that log the greedy action beside the run folders."""

    def _start(self, plan: RunPlan, output: Path) -> Popen[bytes]:
        arguments = [str(log_of(plan)), *plan.arguments]
        return attempts.start(arguments, str(output), plan.cpus, module=watched.__name__)


def log_of(plan: RunPlan) -> Path:
    """Return the file with the changes of the greedy action in a run."""
    return plan.logdir / f"{plan.name}.csv"


def write_figure(sweep: Sweep, out: Path, *, jobs: int, command: str) -> None:
    """Train all algorithms and seeds, and write the figure and its page."""
    unfinished = out / "unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    plans = sweep.plans(unfinished)  # seed by seed
    run_plans(
        plans,
        folder=unfinished,
        retries=RETRIES,
        start_executor=lambda _: WatchedExecutor(jobs),
    )
    changes: AllChanges = {
        algo: [read_changes(log_of(plan)) for plan in plans[place :: len(sweep.algorithms)]]
        for place, algo in enumerate(sweep.algorithms)
    }
    write_csv(
        out / "changes.csv",
        [
            {"algo": algo, "seed": seed, "env_step": env_step, "action": action}
            for algo, runs in changes.items()
            for seed, of_run in enumerate(runs)
            for env_step, action in of_run
        ],
    )
    config = json.loads((plans[0].finished_folder() or out).joinpath("config.json").read_text())
    write_page(out, changes, plans[0].env_steps, command, describe_machine(config))
    remove_runs(plans, unfinished)


def write_page(out: Path, changes: AllChanges, env_steps: int, command: str, machine: str) -> None:
    """Draw the greedy actions of the first runs, and tabulate those of all runs."""
    draw(out / "fig2.png", changes, env_steps)
    (out / "README.md").write_text(page_text(changes, env_steps, command, machine))


def draw(path: Path, changes: Mapping[str, Sequence[Changes]], env_steps: int) -> None:
    """Draw the greedy action of each algorithm's first run over environment steps."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.subplots(len(changes), 1, sharex=True)
        for axis, (algo, (points, *_)) in zip(axes, changes.items(), strict=True):
            steps = [step for step, _ in points] + [env_steps]
            actions = [action for _, action in points] + [points[-1][1]]
            label = PAPER_NAMES[algo]
            axis.step(steps, actions, where="post", linewidth=0.8, color=OWN_COLOURS[label])
            axis.set(ylim=(-0.3, 2.3), yticks=[0, 1, 2], ylabel="greedy action")
            count = count_changes(checked(points, env_steps))
            axis.set_title(f"{label}: {count:,} changes", loc="left")
        axes[-1].set_xlabel("environment steps")
        axes[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        figure.savefig(path, dpi=120)


def checked(changes: Changes, env_steps: int) -> NDArray[np.int_]:
    """Return the greedy action at evenly spaced steps, as many for each algorithm."""
    at, actions = np.array(changes).T
    steps = np.arange(at[0], env_steps, CHECK_EVERY_ENV_STEPS)
    return np.asarray(actions[np.searchsorted(at, steps, side="right") - 1])


def count_changes(actions: NDArray[np.int_]) -> int:
    """Count how often an action differs from the one before."""
    return int(np.count_nonzero(np.diff(actions)))


def page_text(changes: AllChanges, env_steps: int, command: str, machine: str) -> str:
    """Write the page."""
    rows = []
    for algo, of_algo in changes.items():
        runs = [checked(run, env_steps) for run in of_algo]
        # A run's share of each action in its second half.
        shares = np.array([np.bincount(a[len(a) // 2 :], minlength=3) for a in runs], float)
        shares = 100 * shares / shares.sum(axis=1, keepdims=True)
        counts = np.array([count_changes(actions) for actions in runs], float)
        means = [format_mean(counts, 0), format_mean(shares.max(axis=1), 1)]
        row = [
            PAPER_NAMES[algo],
            *means,
            *(f"{s:.1f}" for s in shares.mean(axis=0)),
            str(len(runs)),
        ]
        rows.append(row)
    header = ["", "changes", "share of the most frequent action, %"]
    header += [*(f"action {action}, %" for action in range(3)), "runs"]
    listing = "\n".join(table(header, rows))
    return f"""# {read_figure(FILE).title}

The figure shows the greedy action at the state {STATE[0].tolist()}, logged after every
update. If a method forgets, its greedy action keeps changing. According to the paper, the optimal
action is 1; action 2 pushes to the right.

{listing}
Changes are counted every {CHECK_EVERY_ENV_STEPS} environment steps, DQN's C_current: the other
algorithms update at every step. Shares are those of the second half of a run. Means ± standard
errors over runs.

![Greedy action over training, seed 0](fig2.png)

Command: `{command}`. Every change of every run is in `changes.csv`.
{machine}
"""


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line."""
    parser = Parser(prog=prog, description=__doc__)
    add_figure_arguments(parser, seeds="1")
    count = number(int, at_least=1)
    parser.add_argument("--jobs", type=count, default=1, help="runs at a time (default: 1)")
    parser.add_out(Path("docs/results/fig2"))
    return parser


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    sweep = with_length(read_sweep(FILE), args.seeds, args.steps)
    parser.check_overwrite(args)
    typed = parser.typed(arguments)
    return run_command(
        parser,
        args.out,
        lambda: write_figure(sweep, args.out, jobs=args.jobs, command=typed),
    )
