"""Fits the replay buffer of a run into memory, and evicts transitions as the process grows."""

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tianshou.data import ReplayBuffer
from tianshou.env import BaseVectorEnv

from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.ring import RingReplayBuffer
from medqn_tianshou.replay.tianshou_buffers import predict_replay_nbytes, seed_replay_buffer
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.memory import (
    MemoryLimit,
    MemoryMonitor,
    format_bytes,
    memory_limit,
)
from medqn_tianshou.training.memory_plan import (
    BUDGET_SHARE,
    TRAINING_RESERVE,
    MemoryPlan,
    example_transitions,
    plan_memory,
)
from medqn_tianshou.training.settings import TrainingSettings

_NEAR = 0.95  # share of the memory cap
_STEP = 0.05  # share of it that an eviction frees


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A replay buffer, and the memory that it may take.

    :param description: its size in words.
    :param limit: the memory of the machine or container before the buffer was made.
    :param plan: how the run keeps to its budget, if it has one.
    """

    buffer: ReplayBuffer
    nbytes_at_most: int
    description: str
    limit: MemoryLimit
    plan: MemoryPlan | None = None


def make_replay(settings: TrainingSettings, envs: BaseVectorEnv, *, seed: int) -> Replay:
    """Build the replay buffer that the settings describe.

    :param envs: the environments whose transitions the buffer stores.
    :raises ConfigError: if the memory does not allow it.
    """
    size, cap, limit = settings.buffer_size, settings.memory_cap, memory_limit()
    env_num, space = len(envs), envs.observation_space[0]
    example = example_transitions(space, env_num)
    plan, kind = None, settings.replay
    if settings.memory is not None:
        plan = plan_memory(settings, space, rss=MemoryMonitor().rss())
        kind, cap = plan.replay, min(cap or plan.room, plan.room)
    left = max(limit.available - TRAINING_RESERVE, 0)
    allowed = left if cap is None else min(cap, left)
    whose = f"the {format_bytes(left)} that this {limit.source} has left for it"
    if allowed == cap:
        whose = f"--memory-cap {format_bytes(cap)}"
    options = {"buffer_num": env_num, **settings.buffer_options}
    if kind == "raw":
        nbytes = predict_replay_nbytes(partial(RingReplayBuffer, **options), example, size)
        if nbytes > allowed:
            per_transition = nbytes / (-(-size // env_num) * env_num)
            fits = int(allowed / per_transition) // env_num * env_num
            remedy = f"the largest that fits is --buffer-size {fits}"
            if fits < (smallest := settings.batch_size):
                remedy = f"even the smallest, {smallest}, does not fit; more memory is needed"
            problem = f"transitions take {format_bytes(nbytes)}, more than {whose}; {remedy}"
            raise ConfigError("buffer_size", size, problem)
        buffer: ReplayBuffer = RingReplayBuffer(size, **options)
        description = f"{size:,} transitions will take {format_bytes(nbytes)}"
    else:
        nbytes = allowed
        options |= {"max_bytes": nbytes, "random_seed": 0}
        try:
            CompactVectorReplayBuffer(size, **options).add(example)
        except ValueError as error:
            if allowed != cap:
                problem = f"transitions, and even a few, take more than {whose}; free some memory"
                raise ConfigError("buffer_size", size, problem) from error
            remedy = f"is too small: {error}"
            raise ConfigError("memory_cap", format_bytes(nbytes), remedy) from error
        buffer = CompactVectorReplayBuffer(size, **options)
        in_at_most = "" if cap is None else f", in at most {format_bytes(nbytes)}"
        description = f"up to {size:,} transitions, compact{in_at_most}"
    seed_replay_buffer(buffer, seed)
    return Replay(
        buffer=buffer, nbytes_at_most=nbytes, description=description, limit=limit, plan=plan
    )


def check_replay(
    found: CompactVectorReplayBuffer | None, own: ReplayBuffer, envs: BaseVectorEnv
) -> None:
    """Check that the compact buffer of a checkpoint, if any, can take the place of a run's own.

    :raises ValueError: if it cannot.
    """
    if not isinstance(own, CompactVectorReplayBuffer) or found is None:
        if isinstance(own, CompactVectorReplayBuffer) or found is not None:
            raise ValueError("the replay buffer is of another kind")
        return
    if (found.maxsize, found.buffer_num, found.options, found.keep) != (
        own.maxsize, own.buffer_num, own.options, own.keep,
    ):  # fmt: skip
        raise ValueError(f"the replay buffer is not like this run's ({found!r})")
    space, action_space = envs.observation_space[0], envs.action_space[0]
    for part in found.buffers:
        if not len(part):
            raise ValueError("the replay buffer of an environment is empty")
        stored = {name: (store.shape, store.dtype) for name, store in part.stores.items()}
        frame = None if space.shape is None else space.shape[own.options["save_only_last_obs"] :]
        if frame is not None and stored != {"": (frame, space.dtype)}:
            raise ValueError("the replay buffer has other observations")
        act, rew = part.columns["act"], part.columns["rew"]
        if (act.values.ndim, act.dtype.kind, rew.values.ndim) != (1, "i", 1):
            raise ValueError("the replay buffer has other actions and rewards")
        # Compiled code would read beyond the network's outputs.
        if act.values.min() < 0 or act.values.max() >= action_space.n:
            raise ValueError(f"the replay buffer has actions beyond {action_space.n}")


def replace_replay(own: CompactVectorReplayBuffer, found: CompactVectorReplayBuffer) -> None:
    """Replace the content of a run's buffer by that of a checkpoint, within this machine's memory.

    The collector and the logger keep references to the run's buffer, so the object stays the same.
    """
    limit, before = own.max_bytes, len(found)
    vars(own).update(vars(found))
    if limit is not None:
        own.lower_max_bytes(limit)
    if len(own) < before:
        print(
            f"warning: the replay buffer evicted its oldest {before - len(own):,} transitions: "
            f"this machine has {format_bytes(limit or 0)} for it; the run is no longer exact",
            file=sys.stderr,
        )


def make_watch(
    settings: TrainingSettings, buffer: ReplayBuffer, rss: Callable[[], int]
) -> "MemoryWatch | None":
    """Build the watch over a run's budget or cap; None if nothing can be evicted."""
    if not isinstance(buffer, CompactVectorReplayBuffer):
        return None
    if settings.memory is not None:
        return MemoryWatch(buffer, cap=settings.memory, rss=rss, flag="--memory", near=BUDGET_SHARE)
    if settings.memory_cap is not None:
        return MemoryWatch(buffer, cap=settings.memory_cap, rss=rss)
    return None


class MemoryWatch:
    """Evicts the oldest transitions of a compact replay buffer when the process nears its cap.

    A cap below what the process needs without a buffer cannot hold for the process, and is not
    watched; it still caps the buffer.

    :param cap: the most bytes that the process should need.
    :param rss: returns the resident bytes of the process now.
    :param flag: the flag that set the cap.
    :param near: the fraction of the cap at which transitions are evicted.
    """

    def __init__(
        self,
        buffer: CompactVectorReplayBuffer,
        *,
        cap: int,
        rss: Callable[[], int],
        flag: str = "--memory-cap",
        near: float = _NEAR,
    ) -> None:
        self._buffer = buffer
        self._cap, self._flag = cap, flag
        self._rss = rss
        self._near, self._aim = near * cap, (near - _STEP) * cap
        self.is_on = rss() - buffer.nbytes < self._aim
        self._threshold = self._near

    def check(self) -> str | None:
        """Evict transitions if necessary, and return a line for the user if some were evicted."""
        rss = self._rss()
        if not self.is_on or rss <= self._threshold:
            return None
        before = len(self._buffer)
        self._buffer.lower_max_bytes(max(int(self._buffer.nbytes - (rss - self._aim)), 0))
        with suppress(OSError, AttributeError):  # not the GNU C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        # Freed memory does not always return to the system, but the process uses it again: only
        # growth beyond the present size calls for another eviction.
        self._threshold = max(self._near, self._rss() + _STEP * self._cap)
        return (
            f"memory: {format_bytes(rss)} is near {self._flag} {format_bytes(self._cap)}; the "
            f"replay buffer evicted its oldest {before - len(self._buffer):,} transitions and "
            f"stays below {format_bytes(self._buffer.max_bytes or 0)} from now on"
        )
