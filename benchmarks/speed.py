#!/usr/bin/env python
"""Measure training speed: Tianshou's DQN, MeDQN written on it directly, ours, and a bare loop.

Parts, each of which can be run alone; results of the others are kept:

  atari        Qbert, 1 environment
  atari10      Qbert, 10 environments
  minatar      Breakout
  mountaincar  MountainCar
  update       the time of one policy.update on Atari
  breakdown    where the time of our own training goes
  options      memory format, optimizer, threads and torch.compile, one at a time

All contestants of a part train in this one process, in turns. All of it takes about 25 minutes
(--quick: 3) and 5 GB of memory, and wants an idle machine. Example:

  python benchmarks/speed.py --quick --json speed.json
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import breakdown
import options
import races
import torch
from ratios import summarize
from report import Part, Report, note

from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.envs.atari import atari_tasks

TITLE = "Training speed"
INTRODUCTION = """\
Environment steps per second of whole trainings, learning included, evaluation and warm-up excluded:

- `stock_dqn`: Tianshou's own policy, collector, buffer and trainer, set up as its examples do, with
  the paper's settings;
- `stock_medqn`: MeDQN written on those classes directly: two samples, separate forward passes;
- no prefix: ours, as the scripts run it;
- `bare`: the same environment, network, batches and schedule in a minimal loop without a framework;
- `sb3`: Stable-Baselines3, where it is installed.

All take turns in one process, on the same number of threads, and explore at one fixed rate, so that
all act by their networks. Ratios are of medians."""
OUT = Path("docs/results/speed")
QUICK_OUT = Path("log/speed-quick")
PARTS: dict[str, Part] = {
    "atari": races.ATARI,
    "atari10": races.ATARI10,
    "minatar": races.MINATAR,
    "mountaincar": races.MOUNTAIN_CAR_PART,
    "update": races.UPDATE,
    "breakdown": breakdown.BREAKDOWN,
    "options": options.OPTIONS,
}
NEED_ATARI = {"atari", "atari10", "update", "breakdown"}
NEED_MINATAR = {"minatar", "breakdown"}


def _sizes(**races: tuple[int, int]) -> Mapping[str, tuple[int, int]]:
    return races


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much to measure."""

    races: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: _sizes(
            atari_1env=(3_000, 400),
            atari_10env=(3_000, 400),
            minatar=(5_000, 320),
            mountaincar=(1_000, 320),
        )
    )
    """Environment steps to fill the buffers, and in a chunk, by race."""
    turns: int = 13
    """Chunks that are timed, of each contestant."""
    dropped: int = 2
    """Chunks before those."""
    option_turns: int = 25
    update_turns: int = 60
    breakdown_chunks: int = 10


QUICK = Sizes(
    races=_sizes(
        atari_1env=(1_000, 120),
        atari_10env=(1_000, 120),
        minatar=(1_000, 96),
        mountaincar=(500, 96),
    ),
    turns=5,
    dropped=1,
    update_turns=15,
    breakdown_chunks=3,
)


def make_parser() -> Parser:
    """Build the command line."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--parts",
        help="what to measure, separated by commas (default: all; with --quick all but options)",
    )
    parser.add_argument("--quick", action="store_true", help="all ratios in about three minutes")
    parser.add_argument(
        "--out",
        type=Path,
        help=f"folder of the page, README.md (default: {OUT}; with --quick {QUICK_OUT})",
    )
    parser.add_argument(
        "--json", type=Path, help="all figures and ratios (default: speed.json in --out)"
    )
    return parser


def main(arguments: Sequence[str] | None = None, sizes: Sizes | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line.
    :param sizes: how much to measure; None is what the command line says.
    """
    parser = make_parser()
    args = parser.parse_args(arguments)
    names = args.parts.split(",") if args.parts else [*PARTS]
    if args.quick and not args.parts:
        names.remove("options")
    for name in names:
        if name not in PARTS:
            parser.bad("--parts", repr(name), f"is not a part; choose from {','.join(PARTS)}")
    _check_installed(parser, names)
    out = args.out or (QUICK_OUT if args.quick else OUT)
    path = args.json or out / "speed.json"
    try:
        report = Report(path, quick=args.quick)
        report.sections(PARTS)
    except (KeyError, TypeError, json.JSONDecodeError):
        parser.bad("--json", path, "is not a file of this version of the benchmark; name another")
    except ValueError as error:
        parser.bad("--json", path, str(error))

    page = out / "README.md"
    threads = torch.get_num_threads()
    for name in [name for name in PARTS if name in names]:
        note(f"{name} ...")
        torch.set_num_threads(threads)  # our trainings of small networks take one
        report.measure(name, PARTS[name], sizes or (QUICK if args.quick else Sizes()))
        measured = [part["measured"] for part in report.parts.values()]
        report.write(page, TITLE, PARTS, introduction=INTRODUCTION, summary=summarize(measured))
    print(page.read_text())
    return 0


def _check_installed(parser: Parser, names: Sequence[str]) -> None:
    """Stop before the first part if what a later one needs is missing."""
    missing = {
        "atari": set() if atari_tasks() else NEED_ATARI,
        "minatar": set() if any(metadata.distributions(name="MinAtar")) else NEED_MINATAR,
    }
    for extra, parts in missing.items():
        if wanting := parts.intersection(names):
            parser.bad(
                "--parts",
                ",".join(sorted(wanting)),
                f"needs: pip install 'medqn-tianshou[{extra}]'; or leave it out",
            )


if __name__ == "__main__":
    sys.exit(main())
