"""Show what a run survives: kills at random instants, a full disk, damaged checkpoints, long hours.

Each part can be run alone; the results of the other parts are kept:

  kills   runs of each script, killed at random instants and resumed
  faults  a full disk, damaged checkpoints, two processes on one run
  fuzz    forged replay buffers, checkpoints and run folders: one change in a valid file
  soak    the memory of a long run
  saving  time and memory to save a full buffer of Atari frames

Examples:
  python -m benchmarks.torture
  python -m benchmarks.torture --quick --parts kills --out torture-quick

"""

from dataclasses import dataclass

from benchmarks.command import Benchmark
from benchmarks.torture import faults, fuzz, kills, saving, soak


@dataclass(frozen=True)
class Sizes:
    """How much to do."""

    kills: int = 50
    seconds: float = 1.5
    """The longest life before a kill."""
    soak_env_steps: int = 300_000
    transitions: int = 100_000
    mutations: int = 2_000


BENCHMARK = Benchmark(
    name="torture",
    description=__doc__,
    # Saving last: its games must not run before a fork.
    parts={
        "kills": kills.KILLS,
        "faults": faults.FAULTS,
        "fuzz": fuzz.FUZZ,
        "soak": soak.SOAK,
        "saving": saving.SAVING,
    },
    sizes=Sizes(),
    quick_sizes=Sizes(
        kills=3, seconds=1.0, soak_env_steps=20_000, transitions=3_000, mutations=100
    ),
    quick_help="a few kills, short runs",
    needs={
        "atari": frozenset({"kills", "fuzz", "saving"}),
        "minatar": frozenset({"kills", "fuzz", "soak"}),
    },
    title="Robustness: kills, faults and long runs",
)
make_parser = BENCHMARK.make_parser
