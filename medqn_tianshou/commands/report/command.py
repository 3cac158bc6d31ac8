"""Make tables and figures from runs: learning curves, scores, return against memory and time.

Intervals are 95% bootstrap intervals over runs; IQM, optimality gap and probability of improvement
are those of rliable. The report is a folder with README.md, each figure as PNG and SVG, and each
table as CSV. RUNS may also be the raw/ folders of `medqn reproduce`.

Examples:
  %(prog)s log
  %(prog)s campaign/results/A1 --out report
  %(prog)s log/QbertNoFrameskip-v4 log/PhoenixNoFrameskip-v4 --metric eval --window 3

"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from medqn_tianshou.commands.finding import find_folders
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.commands.report.analysis import Analysis, Options, read_curves
from medqn_tianshou.commands.report.groups import group_runs
from medqn_tianshou.commands.report.page import write_report
from medqn_tianshou.commands.report.runs import LeftOut, RecordedRun, find_runs, read_runs
from medqn_tianshou.files.extras import install_command

BOUNDS = "TASK=LOW:HIGH"
HELP = {
    "--out": "folder of the report (default: report)",
    "--metric": "returns of training or of evaluations (default: eval if all runs have some)",
    "--window": "training episodes, or evaluations, that a return averages over "
    "(default: the runs' --return-window; 1 evaluation)",
    "--bounds": "returns that count as 0 and 1, once per task (default: random and human player "
    "for evaluations in Atari, else the lowest and highest final return of the runs)",
    "--bootstrap": "resamples per interval (default: 2000)",
    "--seed": "random seed of the resamples (default: 0)",
    "--title": "heading of the page (default: Report)",
    "--unfinished": "include unfinished runs, up to their last step",
}


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line."""
    parser = Parser(prog=prog, description=__doc__.replace("95%", "95%%"))
    text = "run folders, folders to search for them, or tasks (uses their runs in log)"
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help=text)
    flags: dict[str, dict[str, Any]] = {
        "--out": {"type": Path, "default": Path("report")},
        "--metric": {"choices": ("train", "eval")},
        "--window": {"type": number(int, at_least=1)},
        "--bounds": {"type": _bounds, "action": "append", "default": [], "metavar": BOUNDS},
        "--bootstrap": {"type": number(int, at_least=100), "default": 2000, "metavar": "N"},
        "--seed": {"type": number(int, at_least=0), "default": 0},
        "--title": {"default": "Report"},
        "--unfinished": {"action": "store_true"},
    }
    for flag, options in flags.items():
        parser.add_argument(flag, help=HELP[flag], **options)
    return parser


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        _report(parser, args, shlex.join([*parser.prog.split(), *given]))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _report(parser: Parser, args: argparse.Namespace, command: str) -> None:
    runs, left_out = _read(parser, args)
    try:
        import rliable.library  # noqa: F401 (may be missing, or not fit what it builds on)
    except ImportError as error:
        parser.error(f"the statistics need rliable ({error}); {install_command('report')}")
    check_out(parser, args.out)
    options = Options(
        metric=args.metric or ("eval" if all(run.evaluations for run in runs) else "train"),
        window=args.window,
        repetitions=args.bootstrap,
        seed=args.seed,
        bounds=dict(args.bounds),
    )
    curves, without = read_curves(runs, options)
    if not curves:
        remedy = "use --metric train" if options.metric == "eval" else "name others"
        parser.bad("--metric", options.metric, f"is not in any of the runs; {remedy}")
    groups, twice = group_runs([run for run in runs if run.name in curves])
    tasks = {task for task, _ in groups}
    for task in options.bounds:
        if task not in tasks:
            parser.bad(
                "--bounds", task, f"is not a task of these runs; they have {', '.join(tasks)}"
            )
    left_out += [*without, *twice]
    analysis = Analysis(groups, curves, options)
    write_report(args.out, analysis, left_out, title=args.title, command=command)
    for run in left_out:
        print(f"left out: {run.name}: {run.reason}", file=sys.stderr)
    print(f"runs: {sum(map(len, groups.values()))}")
    print(f"algorithms: {', '.join(analysis.labels)}")
    print(f"tasks: {', '.join(analysis.tasks)}")
    print(f"report: {args.out / 'README.md'}")


def _read(parser: Parser, args: argparse.Namespace) -> tuple[list[RecordedRun], list[LeftOut]]:
    """Read all runs that the command line names."""
    files: list[Path] = []
    for folder in args.runs:
        places = find_folders(folder)
        found = [file for place in places for file in find_runs(place)]
        if not found:
            what = "contains no run" if places[0].is_dir() else "is not a folder"
            remedy = f"{what}; name run folders such as log/TASK/ALGO/SEED"
            parser.bad("RUNS", repr(str(folder)), remedy)
        files += found
    runs, left_out = read_runs(files)
    if not args.unfinished:
        why = "{0.status} after {0.env_steps:,} env steps; --unfinished includes it"
        unfinished = [run for run in runs if run.status != "finished"]
        left_out += [LeftOut(run.name, why.format(run)) for run in unfinished]
        runs = [run for run in runs if run.status == "finished"]
    if not runs:
        first = left_out[0]
        parser.bad(
            "RUNS",
            " ".join(map(str, args.runs)),
            f"has no run to report; the first of {len(left_out)} is {first.name}: {first.reason}",
        )
    return runs, left_out


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    """Argument type for the scale of a task."""
    task, _, numbers = text.rpartition("=")
    try:
        low, high = map(float, numbers.split(":"))
    except ValueError:
        low = high = 0.0
    if not task or not isfinite(high - low) or low >= high:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {BOUNDS} with LOW below HIGH; write e.g. MountainCar-v0=-1000:0"
        )
    return task, (low, high)


def check_out(parser: Parser, out: Path) -> None:
    """Report a folder that cannot be written to, before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        parser.bad("--out", out, f"cannot be written to ({reason}); name another folder")
