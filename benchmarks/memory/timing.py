"""The time to add to compact replay, and to fetch from it."""

import time
from collections.abc import Callable
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch

from benchmarks.memory.play import ATARI_REPLAY, GAMES, REPLAY, RandomPlay, Recording, make_game
from benchmarks.report import Part, Result, Section, Table, Target, note
from medqn_tianshou import CompactVectorReplayBuffer
from medqn_tianshou.fast.targets import SingleFetch
from medqn_tianshou.replay.tianshou_buffers import seed_replay_buffer

BATCH_SIZE = 32
ADDS_PER_PASS = 64
"""Whole blocks, as one add in a block encodes all of it; few, to be rarely interrupted."""
SLOWEST = 32
FIELDS = ("act", "rew", "terminated", "truncated", "done")

Index = NDArray[np.int64]
Fetch = Callable[[Any, Index], tuple[Any, ...]]


def fetch_for_training(buffer: Any, states: Index) -> tuple[Any, ...]:
    """Fetch a TD batch (3-step) and states from any buffer as ``MeDQNPolicy`` does."""
    fetch = SingleFetch(buffer, n_step=3, draw_states=lambda _: [states])
    batch, _ = fetch.sample(BATCH_SIZE)
    return batch.obs, batch.obs_next, fetch.states[0], *(batch[field] for field in FIELDS)


def fetch_by_tianshou(buffer: Any, states: Index) -> tuple[Any, ...]:
    """Fetch the same from any buffer by the calls of Tianshou's own DQN."""
    batch, index = buffer.sample(BATCH_SIZE)
    last = buffer.next(buffer.next(index))
    obs_next, obs = buffer[last].obs_next, buffer.get(states, "obs")
    return batch.obs, obs_next, obs, *(batch[field] for field in FIELDS)


FETCHES: dict[str, Fetch] = {
    "as training fetches": fetch_for_training,
    "by Tianshou's own calls": fetch_by_tianshou,
}
WAYS = dict(zip(FETCHES, ("`FastMeDQNPolicy`", "DQN in Tianshou"), strict=True))
"""The names of the fetches on the page."""


def measure_times(sizes: Any) -> Result:
    """Time adding and fetching."""
    fetch_us: dict[str, dict[str, dict[str, float]]] = {}
    add_us: Result = {}
    for game in GAMES:
        buffers = {
            replay: kind(sizes.fetch_transitions, 1, **ATARI_REPLAY)
            for replay, kind in REPLAY.items()
        }
        play = RandomPlay(make_game(game))
        play.fill(*buffers.values(), transitions=sizes.fetch_transitions)
        fetch_us[game] = time_fetches(buffers, sizes.fetch_repeats)
        for way, medians in fetch_us[game].items():
            note(f"times: {game}, {way}: {medians['compact'] / medians['raw']:.2f} x raw")
        if game == "Qbert":
            add_us = time_adds(buffers, play, sizes.add_passes)
            note(f"times: add: {add_us['compact']['mean']:.0f} us, raw {add_us['raw']['mean']:.0f}")
    return {
        "transitions": sizes.fetch_transitions,
        "fetch_repeats": sizes.fetch_repeats,
        "fetch_us": fetch_us,
        "adds": sizes.add_passes * ADDS_PER_PASS,
        "add_us": add_us,
        "fetch_us_by_size": time_sizes(
            sizes.small_transitions, sizes.large_transitions, sizes.fetch_repeats
        ),
    }


def time_fetches(buffers: dict[str, Any], repeats: int) -> dict[str, dict[str, float]]:
    """Time each way to fetch from full buffers with the same content, in turns.

    :param repeats: the number of fetches; the result is their median.
    """
    for buffer in buffers.values():
        seed_replay_buffer(buffer, 0)
    tasks = {
        (way, replay): (fetch, buffer)
        for way, fetch in FETCHES.items()
        for replay, buffer in buffers.items()
    }
    medians = time_in_turns(tasks, repeats)
    return {way: {replay: medians[way, replay] for replay in buffers} for way in FETCHES}


def time_in_turns(tasks: dict[Any, tuple[Fetch, Any]], repeats: int) -> dict[Any, float]:
    """Return the median time of each fetch, in microseconds.

    :param tasks: fetches and the full buffers, of one environment, to fetch from.
    """
    generator = np.random.default_rng(0)
    times: dict[Any, list[float]] = {key: [] for key in tasks}
    warm_up = 10
    for _ in range(warm_up + repeats):
        for key, (fetch, buffer) in tasks.items():
            states = generator.integers(len(buffer), size=BATCH_SIZE)
            start = time.perf_counter()
            fetch(buffer, states)
            times[key].append(1e6 * (time.perf_counter() - start))
    return {key: median(values[warm_up:]) for key, values in times.items()}


def time_adds(buffers: dict[str, Any], play: RandomPlay, passes: int) -> Result:
    """Time adding to full buffers, in turns; in microseconds.

    :param play: plays the transitions before the timing.
    :param passes: how often to add ``ADDS_PER_PASS`` transitions; ``mean`` is the median of means.
    """
    times: dict[str, list[list[float]]] = {replay: [] for replay in buffers}
    for _ in range(passes):
        batches = [play.step() for _ in range(ADDS_PER_PASS)]
        for replay, buffer in buffers.items():
            times[replay].append([_time_add(buffer, batch) for batch in batches])
    return {
        replay: {
            "mean": median(map(mean, values)),
            "median": median(value for one_pass in values for value in one_pass),
            "slowest": median(
                median(sorted(one_pass)[-ADDS_PER_PASS // SLOWEST :]) for one_pass in values
            ),
        }
        for replay, values in times.items()
    }


def _time_add(buffer: Any, batch: Batch) -> float:
    start = time.perf_counter()
    buffer.add(batch, [0])
    return 1e6 * (time.perf_counter() - start)


def time_sizes(small: int, large: int, repeats: int) -> dict[str, float]:
    """Time fetches from a small and a large compact buffer of recorded play, in turns."""
    recording = Recording.of(RandomPlay(make_game("Qbert")), min(small, 10_000))
    tasks: dict[Any, tuple[Fetch, Any]] = {}
    for size in (small, large):
        buffer = CompactVectorReplayBuffer(size, 1, **ATARI_REPLAY, random_seed=0)
        for batch in recording.repeat(size):
            buffer.add(batch, [0])
        tasks[f"{size:,}"] = fetch_for_training, buffer
        note(f"times: filled {buffer}")
    return time_in_turns(tasks, repeats)


def show_times(result: Result) -> Section:
    """Show times to add and to fetch."""
    by_game = result["fetch_us"]
    fetch_rows = [
        (WAYS[way], game, *(f"{times[r]:,.0f} us" for r in REPLAY), f"{_ratio(times):.2f}")
        for way in FETCHES
        for game, times in ((game, by_game[game][way]) for game in by_game)
    ]
    add_rows = [
        (replay, *(f"{times[key]:.0f} us" for key in ("mean", "median", "slowest")))
        for replay, times in result["add_us"].items()
    ]
    by_size = result["fetch_us_by_size"]
    small, large = by_size.values()
    size_rows = [(size, f"{value:,.0f} us") for size, value in by_size.items()]
    targets = [
        Target(
            what="time to add one step, encoding included",
            value=result["add_us"]["compact"]["mean"],
            at_most=60,
            unit="us",
        )
    ]
    for way in FETCHES:
        ratios = [_ratio(by_game[game][way]) for game in by_game]
        for which, value in (("mean of the games", mean(ratios)), ("worst game", max(ratios))):
            what = f"fetch against raw, {WAYS[way]}, {which}"
            targets.append(Target(what=what, value=value, at_most=4, unit="x"))
    names = " against ".join(list(by_size)[::-1])
    targets.append(Target(what=f"fetch, {names}", value=large / small, at_most=1.15, unit="x"))
    return Section(
        title="Time to add and to fetch",
        tables=[
            Table(("fetch", "game", *REPLAY, "ratio"), fetch_rows),
            Table(("add, Qbert", "mean", "median", f"slowest 1 in {SLOWEST}"), add_rows),
            Table(("fetch, compact, by transitions", ""), size_rows),
        ],
        notes=(
            "A fetch is a TD batch of 32 (stacks of 4 frames, 3-step) and 32 states, from full "
            f"buffers of {result['transitions']:,} transitions of the same random play; medians of "
            f"{result['fetch_repeats']:,}, measured in turns. `FastMeDQNPolicy` reads the "
            "observations, the 3-step successors and the states in one request, each once. DQN in "
            "Tianshou calls `sample`, which also reads 1-step successors, and then "
            "`buffer[index].obs_next`, which also reads the observations.\n\n"
            f"Add: {result['adds']:,} prepared transitions, to full buffers. The mean is the "
            f"median of means over {ADDS_PER_PASS} adds; some adds encode a block.\n\n"
            "Fetch by number of transitions: buffers of one environment, filled with copies of "
            "recorded Qbert frames, each shifted by a pixel; requests as in `FastMeDQNPolicy`."
        ),
        targets=targets,
    )


def _ratio(times: dict[str, float]) -> float:
    return times["compact"] / times["raw"]


TIMES = Part(measure_times, show_times)
