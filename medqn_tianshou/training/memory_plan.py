"""Plans a run for a memory budget: the process, and the rest for its buffer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tianshou.data import Batch, ReplayBuffer

from medqn_tianshou.replay.tianshou_buffers import predict_replay_nbytes
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.memory import MB, format_bytes
from medqn_tianshou.training.settings import REPLAY_FREE, Replay, TrainingSettings

BUDGET_SHARE = 0.90
"""A run stays below this fraction of its budget; the rest is a reserve."""
TRAINING_RESERVE = 120 * MB
"""Memory for compiled code, gradients and activations, which are allocated in training."""
ENVPOOL_NBYTES = 110 * MB
"""The memory of EnvPool, which runs several environments."""
COMPACT_FRAME_NBYTES = 500
"""A frame in a compact buffer; the largest in docs/results/memory is 422."""
COMPACT_ROW_NBYTES = 20
"""All else of a transition in a compact buffer."""


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The budget of a run, in bytes.

    :param process: the process without its buffer.
    :param room: the limit of the buffer.
    :param expected: the expected size of the full buffer.
    """

    budget: int
    process: int
    room: int
    expected: int
    replay: Replay
    buffer_size: int
    env_count: int
    test_envs: int
    threads: int

    def __str__(self) -> str:
        fits = self.room / self.expected
        count = f"all {self.buffer_size:,} transitions"
        if fits < 1:
            count = f"about {int(self.buffer_size * fits):,} of {self.buffer_size:,} transitions"
        return (
            f"memory: {format_bytes(self.budget)}, the run uses at most {BUDGET_SHARE:.0%}\n"
            f"  process without buffer  {format_bytes(self.process)}: libraries, network, "
            f"{self.env_count} training and {self.test_envs} test environment(s)\n"
            f"  replay buffer, {self.replay:7}  {format_bytes(self.room)} at most: {count}, "
            f"expected to take {format_bytes(min(self.expected, self.room))}\n"
            f"  threads                 {self.threads or 'as many as torch chooses'}: "
            "less than 1 MB each"
        )


def plan_memory(settings: TrainingSettings, space: Any, *, rss: int) -> MemoryPlan:
    """Plan a run for the budget of its settings.

    A raw buffer that does not fit becomes a compact one, unless a flag requests a raw one.

    :param space: the space of one observation.
    :param rss: the bytes of the process now, with its libraries loaded.
    :raises ConfigError: if the budget is too small.
    """
    budget = settings.memory or 0
    process = max(settings.process_nbytes, rss + TRAINING_RESERVE)
    process += predict_states(settings, space)
    if settings.env_count > 1:
        process += ENVPOOL_NBYTES
    room = int(BUDGET_SHARE * budget) - process
    kind, expected = settings.replay, predict_buffer(settings, space)
    if kind == "raw" and expected > room and settings.sources.get("replay") != "flag":
        kind = "compact"
        expected = predict_buffer(settings, space, kind)
    # A compact buffer of less than a mini-batch would train on the same transitions all the time.
    least = _raw_nbytes(settings, space, min(settings.batch_size, settings.buffer_size))
    needed = expected if kind == "raw" else least
    if needed > room:
        smallest = -int(-(process + needed) / BUDGET_SHARE // MB)
        hint = ", or less with --replay compact" if needed > least + MB else ""
        remedy = (
            f"is too small: the process takes {format_bytes(process)} without its buffer, and the "
            f"run uses at most {BUDGET_SHARE:.0%}; the smallest that works is {smallest}M{hint}"
        )
        raise ConfigError("memory", format_bytes(budget), remedy)
    return MemoryPlan(
        budget=budget,
        process=process,
        room=room,
        expected=expected,
        replay=kind,
        buffer_size=settings.buffer_size,
        env_count=settings.env_count,
        test_envs=settings.test_env_num,
        threads=settings.threads,
    )


def predict_buffer(settings: TrainingSettings, space: Any, replay: Replay | None = None) -> int:
    """Predict the bytes of a full replay buffer; 0 for an algorithm that has none.

    :param space: the space of one observation.
    :param replay: its kind; None is that of the settings.
    """
    if settings.algo in REPLAY_FREE:
        return 0
    if (replay or settings.replay) == "raw":
        return _raw_nbytes(settings, space, settings.buffer_size)
    nbytes = settings.buffer_size * (_row_nbytes(space) + COMPACT_ROW_NBYTES)
    return nbytes if settings.memory_cap is None else min(nbytes, settings.memory_cap)


def predict_states(settings: TrainingSettings, space: Any) -> int:
    """Predict the bytes of a full reservoir of states; 0 for a run that has none."""
    frames = space.shape[0] if str(space.dtype) == "uint8" and len(space.shape) > 1 else 1
    size = _row_nbytes(space) * frames + COMPACT_ROW_NBYTES  # every frame of a stack by itself
    return (settings.state_buffer_size or 0) * size


def _row_nbytes(space: Any) -> int:
    """Predict the bytes of a frame, or of another observation, in compact storage."""
    cells = int(np.prod(space.shape or ()))
    return {"uint8": COMPACT_FRAME_NBYTES, "bool": -(-cells // 8)}.get(
        str(space.dtype), cells * np.dtype(space.dtype).itemsize
    )


def _raw_nbytes(settings: TrainingSettings, space: Any, size: int) -> int:
    # A VectorReplayBuffer takes seconds to compile; it has the same, and the indices again.
    nbytes = predict_replay_nbytes(
        lambda size: ReplayBuffer(size, **settings.buffer_options),
        example_transitions(space, 1),
        size,
    )
    return nbytes + size * np.dtype(np.intp).itemsize


def example_transitions(observation_space: Any, count: int) -> Batch:
    """Make one transition per environment in the form in which the collector stores them."""
    obs = np.zeros((count, *observation_space.shape), observation_space.dtype)
    return Batch(
        obs=obs,
        obs_next=obs,
        act=np.zeros(count, np.int64),
        rew=np.zeros(count, np.float64),
        terminated=np.zeros(count, np.bool_),
        truncated=np.zeros(count, np.bool_),
    )
