"""The paper's figures and tables, each by one command: run what is missing, draw and tabulate.

A figure is a sweep file, and its runs are run by the runner of ``medqn sweep``. A finished run
leaves two files in ``raw/``: its episodes (CSV), and its settings with its summary (JSON). Both are
complete when they appear, so a run with these files is not run again. Run folders are in
``unfinished/`` until then, so that a stopped run resumes from its checkpoint.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from tqdm import tqdm

from medqn_tianshou.commands.edge import exit_code, interrupt_on_sigterm
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.report.figure_page import write_figure_page
from medqn_tianshou.commands.report.runs import PAPER_NAMES
from medqn_tianshou.commands.sweep.executors import Executor, add_runner_arguments, make_executor
from medqn_tianshou.commands.sweep.file import Sweep, SweepFileError, check_settings, read_sweep
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.commands.sweep.runner import Runner, RunStatus
from medqn_tianshou.experiments.figures import Figure
from medqn_tianshou.files.atomic import write_json_atomically, write_text_atomically

StartExecutor = Callable[[Sequence[RunPlan]], Executor]


@dataclass(frozen=True)
class Line:
    """A line of a figure, or a cell of its grid: one algorithm with one set of settings."""

    label: str
    sweep: Sweep
    cell: str = ""
    """The values of what is tuned, in words; empty without a grid."""

    @property
    def slug(self) -> str:
        """The label as a file name."""
        text = f"{self.label} {self.cell}"
        return "".join(c if c.isalnum() or c in ".-" else "_" for c in text).strip("_")


def lines_of(sweep: Sweep) -> list[Line]:
    """Split a sweep into the lines of a figure."""
    lines = []
    for algo, variant in product(sweep.algorithms, sweep.variants):
        if algo in variant.algorithms:
            name = variant.name
            if len(variant.algorithms) > 1 or not name:
                name = PAPER_NAMES[algo] + (f", {name}" if name else "")
            alone = replace(variant, algorithms=(algo,))
            lines.append(Line(name, replace(sweep, algorithms=(algo,), variants=(alone,))))
    return lines


def cells_of(figure: Figure, line: Line) -> list[Line]:
    """Split a line into the cells of the grid that the paper tuned over."""
    (variant,) = line.sweep.variants
    axes = figure.axes_of(*variant.algorithms, variant.name)
    cells = []
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        cell = ", ".join(f"{name} {value:g}" for name, value in chosen.items())
        name, settings = f"{variant.name} {cell}".strip(), variant.settings | chosen
        tuned = replace(variant, name=name, settings=settings)
        cells.append(replace(line, sweep=replace(line.sweep, variants=(tuned,)), cell=cell))
    return cells


def with_length(sweep: Sweep, seeds: int | None, steps: int | None) -> Sweep:
    """Change how many seeds a sweep has, and how many steps its runs; None keeps the file's."""
    settings = sweep.settings if steps is None else {**sweep.settings, "steps": steps}
    kept = sweep.seeds if seeds is None else range(seeds)
    return replace(sweep, seeds=kept, settings=settings)


@dataclass(frozen=True)
class Run:
    """A run of a line, and the file for its settings and summary."""

    plan: RunPlan
    line: Line
    json: Path

    @property
    def csv(self) -> Path:
        """The episodes of the finished run."""
        return self.json.with_suffix(".csv")

    def keep(self, folder: Path) -> None:
        """Keep the results of the finished run, and delete its folder."""
        record = json.loads((folder / "config.json").read_text())
        del record["arguments"]  # they name folders of this machine; the command has the rest
        record["command"] = self.plan.typed
        record["summary"] = json.loads((folder / "summary.json").read_text())
        self.json.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomically(self.json, record, indent=1)
        # Last: a run with this file has finished.
        write_text_atomically(self.csv, (folder / "episodes.csv").read_text())
        shutil.rmtree(folder)


def plan_runs(lines: Sequence[Line], out: Path) -> list[Run]:
    """Plan all runs, seed by seed, so that a stopped figure is complete for its first seeds."""
    runs = [
        Run(plan, line, out / f"raw/{line.slug}_seed{plan.identity['seed']}.json")
        for line in lines
        for plan in line.sweep.plans(out / "unfinished")
    ]
    return sorted(runs, key=lambda run: run.plan.identity["seed"])


def run_plans(
    plans: Sequence[RunPlan],
    *,
    folder: Path,
    retries: int,
    start_executor: StartExecutor,
    on_finished: Callable[[RunStatus], None] = lambda _: None,
) -> None:
    """Run what has not finished.

    :param on_finished: called with each run that has finished, also with those of earlier commands.
    :raises RuntimeError: with the reasons, if runs failed.
    """
    runner = Runner(plans, folder=folder, retries=retries)
    for status in runner.in_state("finished"):  # an earlier command was killed before it kept it
        on_finished(status)
    if len(runner.in_state("finished")) < len(plans):
        runner.run(start_executor(plans), on_finished)
    failed = runner.in_state("failed")
    if failed:
        raise RuntimeError(
            "\n".join(f"{s.plan.name} failed: {s.plan.typed}\n{s.reason}" for s in failed)
        )


def remove_runs(plans: Sequence[RunPlan], unfinished: Path) -> None:
    """Delete the folders of runs whose results are kept, and then ``unfinished`` if it is empty."""
    for plan in plans:
        if (folder := plan.folder()) is not None:
            shutil.rmtree(folder)
    # Of other lines or seeds, there may be runs to resume.
    if not any(unfinished.rglob("config.json")):
        shutil.rmtree(unfinished, ignore_errors=True)


def reproduce(
    figure: Figure,
    lines: Sequence[Line],
    *,
    retries: int,
    out: Path,
    start_executor: StartExecutor,
    command: str,
) -> None:
    """Run what is missing of some lines of a figure, then write its page.

    :param command: what the page names as the command.
    """
    runs, unfinished = plan_runs(lines, out), out / "unfinished"
    missing = {run.plan.name: run for run in runs if not run.csv.exists()}
    finished = len(runs) - len(missing)
    with tqdm(total=len(runs), initial=finished, desc=figure.name, unit=" runs") as bar:

        def keep(status: RunStatus) -> None:
            if status.folder is not None:
                missing[status.plan.name].keep(status.folder)
                bar.update()

        run_plans(
            [run.plan for run in missing.values()],
            folder=unfinished,
            retries=retries,
            start_executor=start_executor,
            on_finished=keep,
        )
    remove_runs([run.plan for run in runs], unfinished)
    files = {
        (line.label, line.cell): [run.json for run in runs if run.line is line] for line in lines
    }
    write_figure_page(out, figure, files, command)


def add_figure_arguments(parser: Parser, *, seeds: str) -> None:
    """Add how many runs a figure has and how long they are; ``seeds`` is the default in words."""
    count = number(int, at_least=1)
    parser.add_argument("--seeds", type=count, help=f"runs per line (default: {seeds})")
    parser.add_argument(
        "--steps",
        "--budget",
        type=count,
        help="env steps per run, to try a figure cheaply (default: the paper's)",
    )


def make_parser(figures: Mapping[str, Figure], prog: str | None = None) -> Parser:
    """Build the command line; ``figures`` are the figures and tables by name."""
    width = max(map(len, figures))
    listing = "\n".join(f"  {name:{width}}  {figure.title}" for name, figure in figures.items())
    parser = Parser(
        prog=prog,
        description="Reproduce a figure or a table of the paper, or a comparison of our own:\n\n"
        + listing,
    )
    parser.add_argument("figure", help="one of the names above")
    add_figure_arguments(parser, seeds="the paper's")
    text = "only these lines, e.g. MeDQN_U DQN"
    parser.add_argument("--only", nargs="+", default=(), metavar="LINE", help=text)
    text = "other settings for all runs, flags of `medqn train`, e.g. seaquest-oxygen=flash"
    parser.add_argument("--set", nargs="+", default=(), metavar="FLAG=VALUE", help=text)
    parser.add_argument(
        "--sweep",
        "--sweep-lr",
        action="store_true",
        help="run a grid of settings (docs/experiments.md), and show the best of each line",
    )
    add_runner_arguments(parser, jobs="1; on a cluster, as many as fit")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the results (default: docs/results/FIGURE, extended by --set and --sweep)",
    )
    return parser


def main(
    figures: Mapping[str, Figure],
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
) -> int:
    """Run what is missing of a figure and write its page; return the exit code."""
    parser = make_parser(figures, prog)
    args = parser.parse_args(arguments)
    if args.figure not in figures:
        parser.bad("figure", repr(args.figure), f"is not known; choose from {', '.join(figures)}")
    figure = figures[args.figure]
    sweep = with_length(read_sweep(figure.path), args.seeds, args.steps)
    for setting in args.set:
        if "=" not in setting:
            parser.bad("--set", repr(setting), "must be FLAG=VALUE, e.g. seaquest-oxygen=flash")
    given = dict(setting.split("=", 1) for setting in args.set)
    try:
        changed = sweep.settings | check_settings("--set", given, sweep.family)
    except SweepFileError as error:
        parser.error(f"argument {error}")
    lines = lines_of(replace(sweep, settings=changed))
    slugs = [line.slug for line in lines]
    for slug in args.only:
        if slug not in slugs:
            parser.bad("--only", repr(slug), f"is not in {args.figure}; it has {', '.join(slugs)}")
    lines = [line for line in lines if not args.only or line.slug in args.only]
    if args.sweep:
        if not figure.sweep:
            grids = ", ".join(name for name in figures if figures[name].sweep)
            parser.error(f"argument --sweep: {args.figure} has no grid; those with one: {grids}")
        lines = [cell for line in lines for cell in cells_of(figure, line)]
    name = "_".join((args.figure, *args.set, *["sweep"] * args.sweep))
    out = args.out or Path("docs/results") / name
    _check_same_length(parser, out, args.steps)
    command = ["medqn", "reproduce", args.figure, "--seeds", args.seeds or figure.seeds]
    command += ["--steps", args.steps] if args.steps else []
    command += ["--only", *args.only] if args.only else []
    command += ["--set", *args.set] if args.set else []
    command += ["--sweep"] * args.sweep
    return run_command(
        parser,
        out,
        lambda: reproduce(
            figure,
            lines,
            retries=args.retries,
            out=out,
            start_executor=lambda plans: make_executor(
                plans, jobs=args.jobs, address=args.address, use_ray=False
            ),
            command=shlex.join(map(str, command)),
        ),
    )


def run_command(parser: Parser, out: Path, run: Callable[[], None]) -> int:
    """Run, then print the page in the folder ``out``; return the exit code."""
    interrupt_on_sigterm()
    try:
        with parser.reporting():
            run()
    except (RuntimeError, SweepFileError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interruption:
        print("stopped; the same command resumes from the checkpoints")
        return exit_code(interruption)
    print((out / "README.md").read_text())
    return 0


def _check_same_length(parser: Parser, out: Path, steps: int | None) -> None:
    """Refuse to mix runs of different lengths in one folder."""
    for path in (out / "raw").glob("*.json"):
        setting = json.loads(path.read_text())["settings"]["steps"]
        is_default = setting["source"] != "flag"
        if (steps is None) != is_default or steps not in (None, setting["value"]):
            given = "the default" if steps is None else steps
            remedy = f"the runs of {setting['value']} steps in {out}; name another --out"
            parser.bad("--steps", given, f"does not fit {remedy}")
