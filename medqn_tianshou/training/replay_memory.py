"""The replay buffer of a run, if the memory allows it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
from tianshou.env import BaseVectorEnv

from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.tianshou_buffers import predict_replay_nbytes, seed_replay_buffer
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.memory import MB, MemoryLimit, format_bytes, memory_limit
from medqn_tianshou.training.settings import TrainingSettings

TRAINING_RESERVE = 500 * MB
"""What a run takes beside its buffer after the check: compiled code, gradients, activations."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A replay buffer, and the memory that it may take."""

    buffer: ReplayBuffer
    nbytes_at_most: int
    description: str
    """Its size in words."""
    limit: MemoryLimit
    """The memory of the machine or container before the buffer was made."""


def make_replay(settings: TrainingSettings, envs: BaseVectorEnv, *, seed: int) -> Replay:
    """Build the replay buffer that the settings describe.

    :param envs: the environments whose transitions the buffer stores.
    :raises ConfigError: if the memory does not allow it.
    """
    size, cap, limit = settings.buffer_size, settings.memory_cap, memory_limit()
    env_num = len(envs)
    example = example_transitions(envs.observation_space[0], env_num)
    left = max(limit.available - TRAINING_RESERVE, 0)
    if settings.replay == "raw":

        def make_raw(total_size: int) -> ReplayBuffer:
            return VectorReplayBuffer(total_size, env_num, **settings.buffer_options)

        nbytes = predict_replay_nbytes(make_raw, example, size)
        _check_raw_fits(settings, nbytes, env_num, left, limit)
        buffer = make_raw(size)
        description = f"{size:,} transitions will take {format_bytes(nbytes)}"
    else:
        nbytes = left if cap is None else min(cap, left)
        options = {**settings.buffer_options, "max_bytes": nbytes, "random_seed": 0}
        try:
            CompactVectorReplayBuffer(size, env_num, **options).add(example)
        except ValueError as error:
            raise ConfigError(
                "memory_cap", format_bytes(nbytes), f"is too little: {error}"
            ) from error
        buffer = CompactVectorReplayBuffer(size, env_num, **options)
        in_at_most = "" if cap is None else f", in at most {format_bytes(nbytes)}"
        description = f"up to {size:,} transitions, compact{in_at_most}"
    seed_replay_buffer(buffer, seed)
    return Replay(buffer=buffer, nbytes_at_most=nbytes, description=description, limit=limit)


def _check_raw_fits(
    settings: TrainingSettings, nbytes: int, env_num: int, left: int, limit: MemoryLimit
) -> None:
    """Check that a raw replay buffer fits the cap and the memory that is left."""
    cap, size, smallest = settings.memory_cap, settings.buffer_size, settings.batch_size
    allowed = left if cap is None else min(cap, left)
    if nbytes <= allowed:
        return
    name = f"the {format_bytes(left)} that this {limit.source} has left for it"
    if allowed == cap:
        name = f"--memory-cap {format_bytes(cap)}"
    per_transition = nbytes / (-(-size // env_num) * env_num)
    fits = int(allowed / per_transition) // env_num * env_num
    remedy = (
        f"the largest that fits is --buffer-size {fits}"
        if fits >= smallest
        else f"even the smallest, {smallest}, does not fit; more memory is needed"
    )
    raise ConfigError(
        "buffer_size",
        size,
        f"transitions take {format_bytes(nbytes)}, more than {name}; {remedy}",
    )


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
