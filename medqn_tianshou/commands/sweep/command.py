"""Run tasks x algorithms x settings x seeds from a small file.

Each run is a separate process. A run that fails is resumed from its checkpoint. The same command
resumes an interrupted sweep and skips finished runs. With the extra `sweep`, Ray schedules the runs
by memory and threads; otherwise they run one after another. An example file:

  family = "lowdim"
  tasks = ["MountainCar-v0", "Catcher"]
  algorithms = ["medqn-u", "dqn"]
  seeds = 5

  [settings]
  steps = 20_000
  lr = [0.001, 0.01]

Examples:
  %(prog)s study.toml --dry-run
  %(prog)s study.toml
  %(prog)s study.toml --address auto --retries 5
  %(prog)s study.toml --no-ray --jobs 2

"""

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from medqn_tianshou.commands.edge import exit_code, interrupt_on_sigterm
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.commands.sweep.executors import (
    EXTRA,
    RayError,
    add_runner_arguments,
    has_ray,
    make_executor,
)
from medqn_tianshou.commands.sweep.file import SweepFileError, read_studies
from medqn_tianshou.commands.sweep.plans import RunPlan
from medqn_tianshou.commands.sweep.runner import Runner
from medqn_tianshou.commands.sweep.table import SweepTable, align
from medqn_tianshou.files.extras import installed_command
from medqn_tianshou.files.lock import InUseError, ProcessLock
from medqn_tianshou.training.memory import format_bytes
from medqn_tianshou.training.run_config import RunConfigError, read_config


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line; ``prog`` is the command that the user typed."""
    parser = Parser(prog=prog, description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="the sweep, a TOML file")
    parser.add_argument(
        "--out", type=Path, help="the folder of the sweep (default: log/sweeps/NAME)"
    )
    parser.add_argument(
        "--study",
        nargs="+",
        metavar="NAME",
        help="run only these studies of the file (default: all)",
    )
    parser.add_argument(
        "--runs",
        nargs="+",
        metavar="PATTERN",
        help="run only the runs whose names in --dry-run match a pattern, e.g. '*_seed0'; in the "
        "order of the patterns",
    )
    for flag, text in (
        ("--dry-run", "list the runs and their resources; run nothing"),
        ("--no-ray", "run local processes, without Ray"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
    add_runner_arguments(parser, jobs="as many as fit; without Ray: 1")
    return parser


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    if args.no_ray and args.address is not None:
        parser.bad("--address", args.address, "is Ray's; leave it out, or --no-ray")
    try:
        studies = read_studies(args.file)
        out = args.out or Path("log/sweeps") / studies[0].name
        names = [study.study for study in studies if study.study]
        for name in args.study or ():
            if name not in names:
                has = f"choose from {', '.join(names)}" if names else "leave it out"
                parser.bad("--study", name, f"is no [[study]] of {args.file}; {has}")
        chosen = [study for study in studies if study.study in (args.study or names or [""])]
        plans = [plan for study in chosen for plan in study.plans(out)]
    except SweepFileError as error:
        parser.bad("FILE", args.file, str(error))
    plans = _chosen(parser, plans, args.runs)
    _check_same_runs(parser, plans, out)
    if args.dry_run:
        _print_plans(plans)
        return 0
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = ProcessLock(out / "sweep.lock")
        lock.acquire()
        try:
            (out / "sweep.toml").write_bytes(args.file.read_bytes())
            return _run(parser, args, plans, out)
        finally:
            lock.release()
    except InUseError:
        parser.bad("--out", out, "is in use by another sweep; wait for it or name another")
    except OSError as error:
        parser.bad("--out", out, f"cannot be written to ({error.strerror or error}); name another")


def _run(parser: Parser, args: argparse.Namespace, plans: Sequence[RunPlan], out: Path) -> int:
    table = SweepTable(sys.stdout)
    runner = Runner(plans, folder=out, retries=args.retries, on_change=table.show)
    use_ray = not args.no_ray and (has_ray() or args.address is not None)
    left = [run.plan for run in runner.runs.values() if run.state != "finished"]
    if left and not use_ray:
        why = "without Ray" if args.no_ray else f"Ray is not installed ({EXTRA})"
        print(f"{why}: {args.jobs or 1} at a time, on this machine", flush=True)
    interrupt_on_sigterm()
    try:
        with parser.reporting():
            executor = make_executor(
                left, jobs=args.jobs, address=args.address, use_ray=use_ray and bool(left)
            )
        runner.run(executor)
    except RayError as error:
        parser.error(str(error))
    except KeyboardInterrupt as interruption:
        print("stopped; the same command resumes from the checkpoints", file=sys.stderr)
        return exit_code(interruption)
    failed = runner.in_state("failed")
    for run in failed:
        print(
            f"{parser.prog}: {run.plan.name} failed after {run.attempts} attempts: {run.reason}\n"
            f"  {run.plan.typed}\n  output: {run.output}",
            file=sys.stderr,
        )
    print(f"{len(plans) - len(failed)} of {len(plans)} runs finished: {out / 'runs'}")
    if len(failed) < len(plans):
        command = f"{installed_command('medqn')} report {out / 'runs'} --out {out / 'report'}"
        print(f"to report: {command}")
    return 1 if failed else 0


def _chosen(
    parser: Parser, plans: Sequence[RunPlan], patterns: Sequence[str] | None
) -> list[RunPlan]:
    """Return the runs that match a pattern, in the order of the patterns; all without patterns."""
    chosen: dict[str, RunPlan] = {}
    for pattern in patterns or ["*"]:
        matching = {plan.name: plan for plan in plans if fnmatchcase(plan.name, pattern)}
        if not matching:
            parser.bad("--runs", pattern, "matches no run; --dry-run without --runs lists them")
        chosen = chosen | matching
    return list(chosen.values())


def _print_plans(plans: Sequence[RunPlan]) -> None:
    rows = [["run", "", "CPUs", "GPUs", "memory", "env steps"]]
    for plan in plans:
        todo = "skip: finished" if plan.finished_folder() else "resume" if plan.folder() else "run"
        needs = [str(plan.cpus), str(plan.gpus), format_bytes(plan.memory_nbytes)]
        rows.append([plan.name, todo, *needs, f"{plan.env_steps:,}"])
    print("\n".join(align(rows)))
    print("\n" + "\n".join(plan.typed for plan in plans))


def _check_same_runs(parser: Parser, plans: Sequence[RunPlan], out: Path) -> None:
    """Refuse to resume runs whose settings in the file have changed."""
    for plan in plans:
        for path in plan.parent.glob("*/config.json"):
            try:
                changed = read_config(path.parent).difference(plan.identity)
            except RunConfigError:
                changed = f"{path} cannot be read"
            if changed:
                problem = f"contains {plan.name} with other settings: {changed}; name another"
                parser.bad("--out", out, problem)
