"""A reservoir of states: bytes per state, and the time it adds to a step and to an update."""

import time
from typing import Any

import numpy as np

from benchmarks.memory.play import RandomPlay, make_game
from benchmarks.memory.storage import make_seaquest
from benchmarks.report import Part, Result, Section, Table, note
from medqn_tianshou import ReservoirStateSampler

BATCH_SIZE = 32
GAMES = ("Qbert", "NameThisGame", "Seaquest (MinAtar)")


def measure_states(sizes: Any) -> Result:
    """Fill a reservoir with random play, and continue until states are rarely replaced."""
    figures: dict[str, dict[str, float]] = {}
    for game in GAMES:
        envs = make_seaquest() if game.startswith("Seaquest") else make_game(game)
        envs.seed(0)
        play, space = RandomPlay(envs), envs.observation_space[0]
        capacity = sizes.reservoir_states
        sampler = ReservoirStateSampler(observation_space=space, capacity=capacity, seed=0)
        warm = ReservoirStateSampler(observation_space=space, capacity=1)
        warm.observe(play.step().obs)  # compiles the codec
        warm.sample(1)
        seconds = {"while it fills": 0.0, "full": 0.0}
        for step in range(10 * capacity):
            obs = play.step().obs
            start = time.process_time()
            sampler.observe(obs)
            seconds["full" if step >= capacity else "while it fills"] += time.process_time() - start
        start = time.process_time()
        for _ in range(sizes.fetch_repeats):
            sampler.sample(BATCH_SIZE)
        sample = (time.process_time() - start) / sizes.fetch_repeats
        figures[game] = {
            "bytes": sampler.nbytes / len(sampler),
            "raw": float(np.prod(space.shape) * np.dtype(space.dtype).itemsize),
            "filling_us": 1e6 * seconds["while it fills"] / capacity,
            "full_us": 1e6 * seconds["full"] / (9 * capacity),
            "sample_us": 1e6 * sample,
        }
        note(f"states: {game}: {figures[game]['bytes']:.0f} bytes per state")
    return {"states": sizes.reservoir_states, "by_game": figures}


def show_states(result: Result) -> Section:
    """Show bytes and times."""
    columns = ("bytes", "raw", "filling_us", "full_us", "sample_us")
    rows = [
        (game, *(f"{figures[name]:,.{0 if name == 'raw' else 1}f}" for name in columns))
        for game, figures in result["by_game"].items()
    ]
    head = (
        "", "bytes per state", "raw", "us per step, filling", "us per step, full",
        f"us per {BATCH_SIZE} states sampled",
    )  # fmt: skip
    return Section(
        title="A reservoir of states",
        tables=[Table(head, rows)],
        notes=(
            f"`ReservoirStateSampler` with {result['states']:,} states, after ten times as many "
            "states of random play. Each state is stored separately, an Atari state with its four "
            "frames. The first states are all stored; once the reservoir is full, the n-th state "
            "is stored with probability capacity / n, a quarter on average. Times are CPU time."
        ),
    )


STATES = Part(measure_states, show_states)
