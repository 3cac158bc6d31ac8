"""Bytes per transition in replay buffers: ours, Tianshou's, Stable-Baselines3's."""

from importlib import import_module
from importlib.util import find_spec
from statistics import mean
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.env import DummyVectorEnv

from benchmarks.memory.play import ATARI_REPLAY, GAMES, RandomPlay, make_game
from benchmarks.report import Part, Result, Section, Table, Target, gigabytes, note
from medqn_tianshou import CompactVectorReplayBuffer
from medqn_tianshou.envs.minatar import EPISODE_LIMITS, MinAtarEnv
from medqn_tianshou.replay.tianshou_buffers import replay_nbytes

PLAYS = {"random": 0.0, "sticky random": 0.5}
"""Kinds of play, and how likely an action is repeated in each."""
FRAMES = (4, 84, 84)


def measure_bytes(sizes: Any) -> Result:
    """Fill a compact buffer with play of each of the paper's Atari games."""
    per_transition: dict[str, dict[str, float]] = {game: {} for game in GAMES}
    for game in GAMES:
        for play, repeat_prob in PLAYS.items():
            buffer = CompactVectorReplayBuffer(sizes.atari_transitions, 1, **ATARI_REPLAY)
            RandomPlay(make_game(game), repeat_prob=repeat_prob).fill(
                buffer, transitions=sizes.atari_transitions
            )
            per_transition[game][play] = buffer.nbytes / len(buffer)
            note(f"bytes: {game}, {play} play: {per_transition[game][play]:.1f}")
    return {"transitions": sizes.atari_transitions, "bytes_per_transition": per_transition}


def show_bytes(result: Result) -> Section:
    """Show bytes per transition."""
    by_game = result["bytes_per_transition"]
    means = {play: mean(values[play] for values in by_game.values()) for play in PLAYS}
    rows = [
        (game, *(f"{values[play]:.1f}" for play in PLAYS))
        for game, values in {**by_game, "mean": means}.items()
    ]
    targets = []
    for play in PLAYS:
        for what, value, at_most in (
            ("mean of the five games", means[play], 280),
            ("Qbert", by_game["Qbert"][play], 170),
            ("Phoenix", by_game["Phoenix"][play], 170),
        ):
            targets.append(
                Target(
                    what=f"bytes per transition, {what}, {play} play",
                    value=value,
                    at_most=at_most,
                    unit="B",
                )
            )
    return Section(
        title="Atari: bytes per transition",
        tables=[Table(("", *(f"{play} play" for play in PLAYS)), rows)],
        notes=(
            f"`nbytes` of a `CompactVectorReplayBuffer` with {result['transitions']:,} transitions "
            "of one environment, divided by their number. Sticky random play repeats its last "
            "action with probability 0.5, and therefore reaches other states. A raw 84x84 frame "
            f"has {84 * 84:,} bytes."
        ),
        targets=targets,
    )


def make_seaquest() -> DummyVectorEnv:
    """Build MinAtar's Seaquest as the MinAtar script does."""
    return DummyVectorEnv(
        [lambda: TimeLimit(MinAtarEnv(game="seaquest"), EPISODE_LIMITS["seaquest"])]
    )


def measure_minatar(sizes: Any) -> Result:
    """Fill a compact buffer, and Tianshou's, with play of MinAtar's Seaquest."""
    envs = make_seaquest()
    envs.seed(0)
    size = sizes.minatar_transitions
    compact = CompactVectorReplayBuffer(size, 1)
    RandomPlay(envs).fill(compact, transitions=size)
    per_transition = {
        "compact": compact.nbytes / len(compact),
        "raw": _raw_nbytes(np.zeros((10, 10, 10), np.bool_), size) / size,
    }
    note(f"minatar: Seaquest: {per_transition['compact']:.1f} bytes per transition")
    return {"transitions": size, "bytes_per_transition": per_transition}


def show_minatar(result: Result) -> Section:
    """Show bytes per transition of Seaquest."""
    values = result["bytes_per_transition"]
    size = result["transitions"]
    return Section(
        title="MinAtar: bytes per transition",
        tables=[
            Table(
                ("Seaquest", "bytes per transition"),
                [
                    ("compact", f"{values['compact']:.1f}"),
                    ("Tianshou's `VectorReplayBuffer`", f"{values['raw']:,.1f}"),
                ],
            )
        ],
        notes=(
            f"Random play, {size:,} transitions with boolean observations of 10x10x10 cells; "
            "Tianshou's buffer, as the MinAtar script uses it, stores successors as well."
        ),
        targets=[
            Target(
                what="bytes per transition, MinAtar Seaquest",
                value=values["compact"],
                at_most=170,
                unit="B",
            )
        ],
    )


def measure_peers(sizes: Any) -> Result:
    """Compare what other buffers take for the same frames, per transition."""
    size = sizes.peer_transitions
    play = RandomPlay(make_game("Qbert"))
    compact = CompactVectorReplayBuffer(size, 1, **ATARI_REPLAY)
    play.fill(compact, transitions=size)
    frames = np.zeros(FRAMES, np.uint8)
    result: Result = {
        "transitions": size,
        "sb3_is_measured": find_spec("stable_baselines3") is not None,
    }
    result["bytes_per_transition"] = {
        "Stable-Baselines3": _sb3_nbytes(size, optimize=False) / size,
        "Stable-Baselines3, `optimize_memory_usage`": _sb3_nbytes(size, optimize=True) / size,
        "Tianshou, as its Atari example uses it": _raw_nbytes(frames, size, **ATARI_REPLAY) / size,
        "compact": compact.nbytes / len(compact),
    }
    return result


def show_peers(result: Result) -> Section:
    """Show the buffers side by side."""
    measured = "measured" if result["sb3_is_measured"] else "computed"
    values = result["bytes_per_transition"]
    rows = [
        (
            name,
            f"{value:,.0f}",
            gigabytes(value * 1e6),
            measured if name.startswith("Stable") else "measured",
        )
        for name, value in values.items()
    ]
    return Section(
        title="Other buffers on the same frames",
        tables=[Table(("Qbert, stacks of 4", "bytes per transition", "1,000,000", ""), rows)],
        notes=(
            f"{result['transitions']:,} transitions of one environment. The size for "
            "Stable-Baselines3 is the sum of its arrays: stacked uint8 observations, with and "
            "without their successors, int64 actions, float32 rewards, dones and timeouts."
        ),
    )


def _raw_nbytes(obs: NDArray[Any], size: int, **options: Any) -> int:
    """The bytes of a VectorReplayBuffer, which allocates all with the first transition."""
    zero = np.zeros(1)
    buffer = VectorReplayBuffer(size, 1, **options)
    buffer.add(
        Batch(
            obs=obs[None],
            obs_next=obs[None],
            act=zero.astype(np.int64),
            rew=zero,
            terminated=zero.astype(bool),
            truncated=zero.astype(bool),
        )
    )
    return replay_nbytes(buffer)


def _sb3_nbytes(size: int, *, optimize: bool) -> int:
    """The bytes of Stable-Baselines3's ReplayBuffer: measured if it is installed, or computed."""
    if find_spec("stable_baselines3") is None:
        observations = size * int(np.prod(FRAMES)) * (1 if optimize else 2)
        action, reward, done, timeout = 8, 4, 4, 4
        return observations + size * (action + reward + done + timeout)
    buffer = import_module("stable_baselines3.common.buffers").ReplayBuffer(
        size,
        gym.spaces.Box(0, 255, FRAMES, np.uint8),
        gym.spaces.Discrete(6),
        device="cpu",
        optimize_memory_usage=optimize,
        handle_timeout_termination=not optimize,  # it does not offer both
    )
    return sum(value.nbytes for value in vars(buffer).values() if isinstance(value, np.ndarray))


BYTES = Part(measure_bytes, show_bytes)
MINATAR = Part(measure_minatar, show_minatar)
PEERS = Part(measure_peers, show_peers)
