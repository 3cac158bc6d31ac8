"""The paper's figures and tables, each one command: run what is missing, then draw and tabulate.

Every run is a call of ``medqn train lowdim`` or ``medqn train minatar`` as a process of its own, by
the runner of ``medqn sweep``. A finished run leaves two files in ``raw/``: its episodes (CSV), and
its settings with its summary (JSON). They are moved there whole, so what is there is finished and
is not run again. Run folders are in ``unfinished/`` until then, so that a stopped run goes on from
its checkpoint.
"""

import json
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from medqn_tianshou.commands.curves import (
    Curve,
    draw_curves,
    final_returns,
    read_curve,
    write_table,
)
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.sweep.executors import add_runner_arguments, make_executor
from medqn_tianshou.commands.sweep.plans import PlanError, RunPlan, plan_run
from medqn_tianshou.commands.sweep.runner import Executor, Runner, RunStatus


@dataclass(frozen=True)
class Variant:
    """One line of a figure.

    :param label: its name in the legend and the table.
    :param algo: the script's ``--algo``.
    :param flags: what differs from the defaults.
    """

    label: str
    algo: str
    flags: str = ""

    @property
    def slug(self) -> str:
        """The label as a file name."""
        return "".join(c if c.isalnum() or c in ".-" else "_" for c in self.label).strip("_")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure or a table of the paper.

    :param title: what it shows.
    :param family: whose experiment runs it: ``medqn train FAMILY``.
    :param task: the flags that name the task.
    :param variants: its lines.
    :param seeds: how many runs the paper averages over.
    :param note: where ours differs from the paper's.
    """

    title: str
    family: str
    task: str
    variants: tuple[Variant, ...]
    seeds: int
    note: str = ""


@dataclass(frozen=True)
class Run:
    """One run of a variant, and where its results go."""

    figure: Figure
    variant: Variant
    seed: int
    steps: int | None
    raw: Path

    @property
    def csv(self) -> Path:
        """The episodes of the finished run."""
        return self.raw / f"{self.variant.slug}_seed{self.seed}.csv"

    @property
    def json(self) -> Path:
        """Settings and summary of the finished run."""
        return self.csv.with_suffix(".json")

    @property
    def flags(self) -> list[str]:
        """The command line of the experiment."""
        steps = [] if self.steps is None else ["--steps", str(self.steps)]
        flags = [*shlex.split(self.figure.task), *shlex.split(self.variant.flags), *steps]
        return [
            "--algo", self.variant.algo, *flags, "--seed", str(self.seed), "--device", "cpu",
        ]  # fmt: skip

    @property
    def command(self) -> str:
        """The call of the experiment, as a user would type it."""
        words = ["medqn", "train", self.figure.family, *self.flags, "--logdir", "log"]
        return shlex.join([*words, "--no-progress"])

    def plan(self, folder: Path) -> RunPlan:
        """Plan the run.

        :param folder: for run folders.
        """
        name = self.csv.stem
        try:
            return plan_run(self.figure.family, self.flags, name=name, logdir=folder / name)
        except PlanError as error:
            raise RuntimeError(f"{name} failed: {self.command}\n{error}") from None

    def keep(self, folder: Path) -> None:
        """Keep the results of the finished run, and delete the rest.

        :param folder: its folder.
        """
        record = json.loads((folder / "config.json").read_text())
        record["command"] = self.command
        record["summary"] = json.loads((folder / "summary.json").read_text())
        self.raw.mkdir(parents=True, exist_ok=True)
        aside = self.json.with_suffix(".part")
        aside.write_text(json.dumps(record, indent=1) + "\n")
        aside.replace(self.json)
        shutil.copy(folder / "episodes.csv", aside)
        aside.replace(self.csv)  # last: a run with this file has finished
        shutil.rmtree(folder)


def reproduce(
    name: str,
    figure: Figure,
    *,
    seeds: int,
    steps: int | None,
    retries: int,
    out: Path,
    start_executor: Callable[[Sequence[RunPlan]], Executor],
    only: Sequence[str] = (),
) -> None:
    """Run what is missing of a figure, then write its table and picture.

    :param name: the figure's name.
    :param figure: the figure.
    :param seeds: how many seeds, from 0 on.
    :param steps: environment steps per run; None is the paper's.
    :param retries: how often to try a failed run again.
    :param out: the folder of the results.
    :param start_executor: starts what runs the missing runs.
    :param only: the file names of the lines to run; none is all.
    """
    runs = [
        Run(figure, variant, seed, steps, out / "raw")
        # Seed by seed, so that an interrupted figure is complete for its first seeds.
        for seed in range(seeds)
        for variant in figure.variants
        if not only or variant.slug in only
    ]
    missing = {run.csv.stem: run for run in runs if not run.csv.exists()}
    unfinished = out / "unfinished"
    plans = [run.plan(unfinished) for run in missing.values()]
    bar = tqdm(total=len(runs), initial=len(runs) - len(missing), desc=name, unit=" runs")

    def keep(run: RunStatus) -> None:
        if run.folder is not None:
            missing[run.plan.name].keep(run.folder)
            bar.update()

    with bar:
        runner = Runner(plans, folder=unfinished, retries=retries)
        for status in runner.runs.values():
            if status.state == "finished":  # the command was killed before it could keep it
                keep(status)
        if not runner.is_finished:
            runner.run(start_executor(plans), keep)
    failed = [status for status in runner.runs.values() if status.state == "failed"]
    if failed:
        raise RuntimeError(
            "\n".join(
                f"{status.plan.name} failed: {missing[status.plan.name].command}\n{status.reason}"
                for status in failed
            )
        )
    shutil.rmtree(unfinished, ignore_errors=True)
    write_results(name, figure, runs, out)


def write_results(name: str, figure: Figure, runs: Sequence[Run], out: Path) -> None:
    """Write the table and the picture from the raw files of finished runs.

    :param name: the figure's name.
    :param figure: the figure.
    :param runs: its runs; those without results are left out.
    :param out: the folder of the results.
    """
    curves: dict[str, list[Curve]] = {}
    record: dict[str, object] = {}
    for run in runs:
        if run.csv.exists():
            loaded = json.loads(run.json.read_text())
            window = loaded["settings"]["return_window"]["value"]
            curve = read_curve(run.csv, window, loaded["summary"]["env_steps"])
            curves.setdefault(run.variant.label, []).append(curve)
            record = loaded
    flags = [f"--seeds {len({run.seed for run in runs})}"]
    if runs[0].steps is not None:
        flags.append(f"--steps {runs[0].steps}")
    lines = {run.variant.slug for run in runs}
    if len(lines) < len(figure.variants):
        flags.append(f"--only {' '.join(sorted(lines))}")
    draw_curves(out / f"{name}.png", figure.title, curves)
    write_table(
        out / "README.md",
        title=figure.title,
        note=figure.note,
        command=f"medqn reproduce {name} {' '.join(flags)}",
        record=record,
        finals={label: final_returns(lines) for label, lines in curves.items()},
        picture=f"{name}.png",
    )


def make_parser(figures: Mapping[str, Figure], prog: str | None = None) -> Parser:
    """Build the command line.

    :param figures: the figures and tables by name.
    :param prog: the command that the user typed; None is the script's name.
    """
    width = max(map(len, figures))
    listing = "\n".join(f"  {name:{width}}  {figure.title}" for name, figure in figures.items())
    parser = Parser(
        prog=prog, description=f"Reproduce a figure or a table of the paper:\n\n{listing}"
    )
    parser.add_argument("figure", help="one of the names above")
    count = number(int, at_least=1)
    parser.add_argument("--seeds", type=count, help="runs per line (default: the paper's)")
    parser.add_argument(
        "--steps",
        "--budget",
        type=count,
        help="env steps per run, to try a figure cheaply (default: the paper's)",
    )
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="LINE", help="some lines, e.g. MeDQN_U DQN"
    )
    add_runner_arguments(parser, jobs="1; on a cluster, as many as fit")
    parser.add_argument(
        "--out", type=Path, help="folder of the results (default: docs/results/FIGURE)"
    )
    return parser


def main(
    figures: Mapping[str, Figure],
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
) -> int:
    """Run what is missing of a figure and write its results; return the exit code.

    :param figures: the figures and tables by name.
    :param arguments: the command line; None takes the process's.
    :param prog: the command that the user typed; None is the script's name.
    """
    parser = make_parser(figures, prog)
    args = parser.parse_args(arguments)
    if args.figure not in figures:
        parser.bad("figure", repr(args.figure), f"is not known; choose from {', '.join(figures)}")
    figure = figures[args.figure]
    slugs = [variant.slug for variant in figure.variants]
    for line in args.only:
        if line not in slugs:
            parser.bad("--only", repr(line), f"is not in {args.figure}; it has {', '.join(slugs)}")
    out = args.out or Path("docs/results") / args.figure
    _check_same_length(parser, out, args.steps)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        with parser.reporting():
            reproduce(
                args.figure,
                figure,
                seeds=args.seeds or figure.seeds,
                steps=args.steps,
                retries=args.retries,
                out=out,
                start_executor=lambda plans: make_executor(
                    plans, jobs=args.jobs, address=args.address, use_ray=False
                ),
                only=args.only,
            )
    except RuntimeError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command resumes from the checkpoints")
        return 130
    print((out / "README.md").read_text())
    return 0


def _check_same_length(parser: Parser, out: Path, steps: int | None) -> None:
    """Refuse to mix runs of different lengths in one folder."""
    for setting in _recorded_steps(out):
        if (steps is None) == (setting["source"] == "flag") or steps not in (
            None,
            setting["value"],
        ):
            parser.bad(
                "--steps",
                "the default" if steps is None else steps,
                f"does not fit the runs of {setting['value']} steps in {out}; name another --out",
            )


def _recorded_steps(out: Path) -> Iterator[dict[str, object]]:
    for path in (out / "raw").glob("*.json"):
        yield json.loads(path.read_text())["settings"]["steps"]
