"""Figure 2: the greedy action of one MountainCar state over training, and how often it changes.

Each algorithm is trained as by lowdim.py, with the paper's settings. Example:

  %(prog)s --seeds 1 --jobs 2
"""

import csv
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from medqn_tianshou.commands.figures import watched
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.report.curves import format_mean
from medqn_tianshou.commands.report.figure_page import describe_machine
from medqn_tianshou.commands.report.markdown import table
from medqn_tianshou.commands.report.runs import PAPER_NAMES
from medqn_tianshou.commands.report.style import OWN_COLOURS, STYLE
from medqn_tianshou.commands.reproduce import (
    add_figure_arguments,
    run_command,
    run_plans,
    with_length,
)
from medqn_tianshou.commands.sweep import attempts
from medqn_tianshou.commands.sweep.file import Sweep, read_sweep
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.commands.sweep.runner import LocalExecutor, RunStatus
from medqn_tianshou.experiments.figures import FOLDER, read_figure
from medqn_tianshou.experiments.forgetting import STATE, Changes, read_changes

FILE = FOLDER / "fig2.toml"
RETRIES = 2
Run = tuple[str, int]
"""Algorithm and seed."""


class WatchedExecutor(LocalExecutor):
    """Processes of this machine that log the greedy action.

    :param jobs: how many at a time.
    :param logs: the folder of the logs.
    """

    def __init__(self, jobs: int, logs: Path) -> None:
        super().__init__(jobs)
        self._logs = logs

    def start(self, plan: RunPlan, output: Path) -> None:
        """Start an attempt."""
        arguments = [str(log_of(plan, self._logs)), *plan.arguments]
        process = attempts.start(arguments, str(output), plan.cpus, module=watched.__name__)
        self._processes[plan.name] = plan, process


def log_of(plan: RunPlan, logs: Path) -> Path:
    """Return the file with the greedy action's changes in a run."""
    return logs / f"{plan.name}.csv"


def train(sweep: Sweep, *, jobs: int, out: Path) -> tuple[dict[Run, Changes], Path]:
    """Train all algorithms and seeds; return the changes, and the folder of one of the runs."""
    unfinished = out / "unfinished"
    logs = unfinished / "changes"
    plans = {
        (algo, seed): plan
        for (seed, algo), plan in zip(
            [(seed, algo) for seed in sweep.seeds for algo in sweep.algorithms],
            sweep.plans(unfinished),
            strict=True,
        )
    }
    folders: list[Path] = []

    def note_folder(status: RunStatus) -> None:
        folders.extend([status.folder] if status.folder else [])

    run_plans(
        list(plans.values()),
        folder=unfinished,
        retries=RETRIES,
        start_executor=lambda _: WatchedExecutor(jobs, logs),
        on_finished=note_folder,
    )
    return {run: read_changes(log_of(plan, logs)) for run, plan in plans.items()}, folders[0]


def draw(path: Path, changes: Mapping[str, Changes], env_steps: int) -> None:
    """Draw the greedy action over environment steps, a panel per algorithm.

    :param changes: the changes of one run of each algorithm.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.subplots(len(changes), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (algo, points) in zip(axes, changes.items(), strict=True):
            steps = [step for step, _ in points] + [env_steps]
            actions = [action for _, action in points] + [points[-1][1]]
            label = PAPER_NAMES[algo]
            axis.step(steps, actions, where="post", linewidth=0.8, color=OWN_COLOURS[label])
            axis.set(ylim=(-0.3, 2.3), yticks=[0, 1, 2], ylabel="greedy action")
            axis.set_title(f"{label}: {len(points) - 1:,} changes", loc="left")
        axes[-1].set_xlabel("environment steps")
        axes[-1].xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:,.0f}"))
        figure.savefig(path, dpi=120)


def write_page(
    out: Path, changes: Mapping[Run, Changes], config: Path, env_steps: int, command: str
) -> None:
    """Write ``changes.csv``, the picture of the first seed, and the page.

    :param config: the ``config.json`` of one of the runs.
    :param command: what the page names as the command.
    """
    with (out / "changes.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["algo", "seed", "env_step", "action"])
        for (algo, seed), of_run in sorted(changes.items()):
            writer.writerows([algo, seed, *change] for change in of_run)
    counts: dict[str, list[float]] = {}
    for (algo, _), of_run in changes.items():
        counts.setdefault(algo, []).append(len(of_run) - 1)
    draw(out / "fig2.png", {algo: changes[algo, 0] for algo in counts}, env_steps)
    rows = [
        [PAPER_NAMES[algo], format_mean(np.array(values), 0), str(len(values))]
        for algo, values in counts.items()
    ]
    header = ["", "changes of the greedy action: mean ± standard error", "runs"]
    listing = "\n".join(table(header, rows))
    page = f"""# {read_figure(FILE).title}

The greedy action at the state {STATE[0].tolist()}, logged after every update. The paper calls
action 1 optimal there; a method that forgets changes its mind again and again.

{listing}
![Greedy action over training, seed 0](fig2.png)

Command: `{command}`. Every change of every run is in `changes.csv`.
{describe_machine(json.loads(config.read_text()))}
"""
    (out / "README.md").write_text(page)


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line.

    :param prog: the command that the user typed; None is the script's name.
    """
    parser = Parser(prog=prog, description=__doc__)
    add_figure_arguments(parser, seeds="1")
    count = number(int, at_least=1)
    parser.add_argument("--jobs", type=count, default=1, help="runs at a time (default: 1)")
    parser.add_argument(
        "--out", type=Path, default=Path("docs/results/fig2"), help="where to write"
    )
    return parser


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    sweep = with_length(read_sweep(FILE), args.seeds, args.steps)
    words = ["python", "lowdim/forgetting.py", "--seeds", str(len(sweep.seeds))]
    words += [] if args.steps is None else ["--steps", str(args.steps)]

    def run() -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        changes, folder = train(sweep, jobs=args.jobs, out=args.out)
        env_steps = json.loads((folder / "summary.json").read_text())["env_steps"]
        write_page(args.out, changes, folder / "config.json", env_steps, shlex.join(words))
        shutil.rmtree(args.out / "unfinished")

    return run_command(parser, args.out, run)
