#!/usr/bin/env python
"""Measure what replay memory takes, and what it costs, beside what it has to reach.

Parts, each of which can be run alone; results of the others are kept:

  bytes     bytes per transition in the paper's five Atari games
  full      a compact buffer with 1,000,000 transitions of Qbert
  minatar   bytes per transition in MinAtar's Seaquest
  times     time to add and to fetch, against Tianshou's buffer
  training  training speed with either buffer
  rss       memory of whole processes, as in the paper's tables
  peers     other libraries' buffers on the same frames

All of it takes about 40 minutes and 9 GB of memory, and wants an idle machine. Example:

  OMP_NUM_THREADS=1 python benchmarks/memory.py --parts bytes,times
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import processes
import storage
import timing
import training
from report import Part, Report, note

from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.envs.atari import atari_tasks

TITLE = "Replay memory: what it takes, and what it costs"
OUT = Path("docs/results/memory")
PARTS: dict[str, Part] = {
    "bytes": storage.BYTES,
    "full": processes.FULL,
    "minatar": storage.MINATAR,
    "times": timing.TIMES,
    "training": training.TRAINING,
    "rss": processes.RSS,
    "peers": storage.PEERS,
}
NEED_MINATAR = {"minatar", "training", "rss"}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much to measure."""

    atari_transitions: int = 100_000
    full_transitions: int = 1_000_000
    full_num_envs: int = 8
    minatar_transitions: int = 100_000
    peer_transitions: int = 100_000
    fetch_transitions: int = 100_000
    fetch_repeats: int = 1_000
    add_passes: int = 250
    small_transitions: int = 10_000
    large_transitions: int = 1_000_000
    training_steps: tuple[tuple[int, int], tuple[int, int]] = ((10_000, 200), (10_000, 400))
    """Atari, MinAtar: environment steps to fill the buffers, and in a turn."""
    training_turns: int = 31
    rss_divisor: int = 1
    """Buffers of the memory tables are smaller by this."""
    rss_rounds: int = 50


QUICK = Sizes(
    atari_transitions=3_000,
    full_transitions=20_000,
    minatar_transitions=3_000,
    peer_transitions=1_000,
    fetch_transitions=3_000,
    fetch_repeats=100,
    add_passes=20,
    small_transitions=1_000,
    large_transitions=20_000,
    training_steps=((200, 40), (200, 40)),
    training_turns=3,
    rss_divisor=100,
    rss_rounds=3,
)


def make_parser() -> Parser:
    """Build the command line."""
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--parts",
        default=",".join(PARTS),
        help="what to measure, separated by commas (default: everything)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: some minutes, figures not to judge by"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, help=f"folder of the page, README.md (default: {OUT})"
    )
    parser.add_argument("--json", type=Path, help="the figures (default: memory.json in --out)")
    return parser


def main(arguments: Sequence[str] | None = None, sizes: Sizes | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line.
    :param sizes: how much to measure; None is what the command line says.
    """
    parser = make_parser()
    args = parser.parse_args(arguments)
    names = args.parts.split(",")
    for name in names:
        if name not in PARTS:
            parser.bad("--parts", repr(name), f"is not a part; choose from {','.join(PARTS)}")
    _check_installed(parser, names)
    if args.quick and args.out == OUT:
        parser.error(f"argument --quick: is not for {OUT}; name another --out")
    path = args.json or args.out / "memory.json"
    try:
        report = Report(path, quick=args.quick)
        report.sections(PARTS)
    except (KeyError, json.JSONDecodeError):
        parser.bad("--json", path, "is not a file of this version of the benchmark; name another")
    except ValueError as error:
        parser.bad("--json", path, str(error))

    page = args.out / "README.md"
    sizes = sizes or (QUICK if args.quick else Sizes())
    for name in [name for name in PARTS if name in names]:
        note(f"{name} ...")
        try:
            report.measure(name, PARTS[name], sizes)
        except RuntimeError as error:
            print(f"{parser.prog}: {name}: {error}", file=sys.stderr)
            return 1
        report.write(page, TITLE, PARTS)
    print(page.read_text())
    return 0


def _check_installed(parser: Parser, names: Sequence[str]) -> None:
    """Stop before the first part if what a later one needs is missing."""
    if set(names) != {"minatar"} and not atari_tasks():
        parser.bad("--parts", ",".join(names), "needs: pip install 'medqn-tianshou[atari]'")
    try:
        metadata.version("MinAtar")
    except metadata.PackageNotFoundError:
        if wanting := NEED_MINATAR.intersection(names):
            parser.bad(
                "--parts",
                ",".join(sorted(wanting)),
                "needs: pip install 'medqn-tianshou[minatar]'; or leave it out",
            )


if __name__ == "__main__":
    sys.exit(main())
