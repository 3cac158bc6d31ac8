"""Measure training speed: Tianshou's DQN, MeDQN written on it directly, ours, and a bare loop.

Each part can be run alone; the results of the other parts are kept:

  atari        Qbert, 1 environment
  atari10      Qbert, 10 environments
  minatar      Breakout
  seaquest     Seaquest, with 10 channels
  mountaincar  MountainCar
  lowdim       Acrobot, Catcher, Pixelcopter
  arithmetic   the update of small networks: arithmetic per second
  contention   the Atari main job with two busy neighbours
  update       the time of one policy.update on Atari
  breakdown    where the time of our own training goes
  options      memory format, optimizer, threads and torch.compile, one at a time

All contestants of a part train in one process, in turns. The whole benchmark takes about 25 minutes
(--quick: 3) and 5 GB of memory, and needs an idle machine. Example:

  python -m benchmarks.speed --quick --json speed.json
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.command import Benchmark
from benchmarks.speed import arithmetic, breakdown, contention, options, races
from benchmarks.speed.ratios import summarize

INTRODUCTION = """\
This page measures training in environment steps per second, without evaluation and warm-up:

- `stock_dqn`: Tianshou's own policy, collector, buffer and trainer, set up as in its examples, with
  the paper's settings;
- `stock_medqn`: MeDQN on these classes, with two samples and separate forward passes;
- no prefix: ours, as in the scripts;
- `compiled`: MountainCar as one compiled program;
- `bare`: the same environment, network, batches and schedule in a minimal loop without a framework;
- `sb3`: Stable-Baselines3, if it is installed.

All programs take turns in one process, with the same number of threads and the same fixed
exploration rate. Ratios are ratios of medians."""


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
            seaquest=(5_000, 320),
            mountaincar=(1_000, 320),
            lowdim=(1_000, 320),
        )
    )
    """By race: environment steps to fill the buffers, and environment steps in a chunk."""
    turns: int = 13
    """Timed chunks of each contestant."""
    dropped: int = 2
    """Chunks before the timed ones."""
    option_turns: int = 25
    update_turns: int = 60
    breakdown_chunks: int = 10
    contention: tuple[int, int] = (2_000, 2)
    """Environment steps of each training, and how often each is run."""


QUICK = Sizes(
    races=_sizes(
        atari_1env=(1_000, 120),
        atari_10env=(1_000, 120),
        minatar=(1_000, 96),
        seaquest=(1_000, 96),
        mountaincar=(500, 96),
        lowdim=(500, 96),
    ),
    turns=5,
    dropped=1,
    update_turns=15,
    breakdown_chunks=3,
    contention=(1_000, 1),
)

BENCHMARK = Benchmark(
    name="speed",
    description=__doc__,
    parts={
        "atari": races.ATARI,
        "atari10": races.ATARI10,
        "minatar": races.MINATAR,
        "seaquest": races.SEAQUEST,
        "mountaincar": races.MOUNTAIN_CAR_PART,
        "lowdim": races.LOWDIM,
        "arithmetic": arithmetic.ARITHMETIC,
        "contention": contention.CONTENTION,
        "update": races.UPDATE,
        "breakdown": breakdown.BREAKDOWN,
        "options": options.OPTIONS,
    },
    sizes=Sizes(),
    quick_sizes=QUICK,
    quick_help="all ratios in about three minutes",
    quick_out=Path("log/speed-quick"),
    not_quick=frozenset({"options"}),
    needs={
        "atari": frozenset({"atari", "atari10", "update", "breakdown", "contention"}),
        "minatar": frozenset({"minatar", "seaquest", "breakdown"}),
    },
    title="Training speed",
    introduction=INTRODUCTION,
    summarize=summarize,
)
make_parser = BENCHMARK.make_parser
