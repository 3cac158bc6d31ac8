"""Measure the size of replay memory, and its cost in time, against targets.

Each part can be run alone; the results of the other parts are kept:

  bytes     bytes per transition in the paper's five Atari games
  full      a compact buffer with 1,000,000 transitions of Qbert
  minatar   bytes per transition in MinAtar's Seaquest
  times     time to add and to fetch, against Tianshou's buffer
  training  training speed with either buffer
  rss       memory of whole processes, as in the paper's tables
  peers     other libraries' buffers on the same frames
  states    a reservoir of states: bytes per state, and its time

The whole benchmark takes about 40 minutes and 9 GB of memory, and needs an idle machine. Example:

  OMP_NUM_THREADS=1 python -m benchmarks.memory --parts bytes,times
"""

from dataclasses import dataclass

from benchmarks.command import Benchmark
from benchmarks.memory import processes, states, storage, timing, training


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much to measure."""

    atari_transitions: int = 100_000
    full_transitions: int = 1_000_000
    full_num_envs: int = 8
    minatar_transitions: int = 100_000
    peer_transitions: int = 100_000
    reservoir_states: int = 1_000
    fetch_transitions: int = 100_000
    fetch_repeats: int = 1_000
    add_passes: int = 250
    small_transitions: int = 10_000
    large_transitions: int = 1_000_000
    training_steps: tuple[tuple[int, int], tuple[int, int]] = ((10_000, 200), (10_000, 400))
    """For Atari and MinAtar: environment steps to fill the buffers, and in a turn."""
    training_turns: int = 31
    rss_divisor: int = 1
    """The buffers of the memory tables are smaller by this factor."""
    rss_rounds: int = 20


QUICK = Sizes(
    atari_transitions=3_000,
    full_transitions=20_000,
    minatar_transitions=3_000,
    peer_transitions=1_000,
    reservoir_states=200,
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

BENCHMARK = Benchmark(
    name="memory",
    description=__doc__,
    parts={
        "bytes": storage.BYTES,
        "full": processes.FULL,
        "minatar": storage.MINATAR,
        "times": timing.TIMES,
        "training": training.TRAINING,
        "rss": processes.RSS,
        "peers": storage.PEERS,
        "states": states.STATES,
    },
    sizes=Sizes(),
    quick_sizes=QUICK,
    quick_help="small sizes: some minutes, figures not to judge by",
    needs={
        "atari": frozenset({"bytes", "full", "times", "training", "rss", "peers", "states"}),
        "minatar": frozenset({"minatar", "training", "rss", "states"}),
    },
    title="Memory: replay buffers and training processes",
)
make_parser = BENCHMARK.make_parser
