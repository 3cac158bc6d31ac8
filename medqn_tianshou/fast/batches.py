"""Mini-batches for compiled updates."""

from operator import is_
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from tianshou.data import ReplayBuffer

from medqn_tianshou.algorithm.samplers import RealStateSampler, UniformStateSampler
from medqn_tianshou.fast import updates
from medqn_tianshou.fast.flat import FlatNetwork
from medqn_tianshou.fast.known import samples_as
from medqn_tianshou.host.api import Agent
from medqn_tianshou.replay.ring import RingReplayBuffer


class MiniBatch(NamedTuple):
    """The mini-batch of an update."""

    obs: NDArray[Any]
    act: NDArray[np.int64]
    reward: NDArray[np.float64]
    """Discounted sums of n steps."""
    factor: NDArray[np.float64]
    """The factor of each successor's value."""
    obs_next: NDArray[Any]
    states: NDArray[Any] | None
    """Consolidation states of all epochs, one after another; None without consolidation."""


class StoredBatch(NamedTuple):
    """1-step transitions that the compiled code reads directly from a ring buffer."""

    obs: NDArray[Any]
    act: NDArray[np.int64]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    obs_next: NDArray[Any]
    chosen: NDArray[np.int_]
    """Which of the stored transitions are in the batch."""
    gamma: float
    states: NDArray[Any] | None


class StoredBatches:
    """Samples mini-batches from a ring buffer; a copy or pickle starts empty."""

    def __init__(self) -> None:
        self._network: FlatNetwork | None = None
        self._arrays: list[Any] = []
        self._rows: list[Any] | None = None
        self._shares, self._states = np.empty((0, 0)), np.empty((0, 0), np.float32)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def draw(
        self,
        buffer: ReplayBuffer,
        network: FlatNetwork,
        sample_size: int | None,
        policy: Agent,
    ) -> StoredBatch | None:
        """Sample as the buffer and the policy's sampler would; None if they must do it themselves.

        The next call overwrites uniform states.
        """
        if type(buffer) is not RingReplayBuffer or policy.n_step > 1:
            return None
        fields: dict[str, Any] = buffer._meta.__dict__
        arrays = list(fields.values())
        is_known = network is self._network and len(arrays) == len(self._arrays)
        if not is_known or not all(map(is_, arrays, self._arrays)):
            self._network, self._arrays = network, arrays
            self._rows = _rows(fields, network)
        rows: Any = self._rows
        sampler: Any = policy.state_sampler
        if rows is None or not buffer.is_plain or not buffer._lengths[0]:
            return None
        consolidates, epochs = policy.consolidation_coef > 0, policy.consolidation_epochs
        is_uniform = False
        if samples_as(sampler, UniformStateSampler):
            is_uniform = sampler.bounds.dtype == fields["obs"].dtype
            is_uniform &= sampler.bounds.shape == fields["obs"].shape[1:]
        if consolidates and not is_uniform and not samples_as(sampler, RealStateSampler):
            return None
        index = buffer.sample_indices(sample_size)
        size = policy.consolidation_batch_size or len(index)
        states: NDArray[Any] | None = None
        if consolidates and is_uniform:
            states = self._uniform(sampler, size, epochs)
        elif consolidates:
            drawn = [sampler.draw_indices(size, buffer) for _ in range(epochs)]
            states = rows[0][np.concatenate(drawn)]
        return StoredBatch._make((*rows, index, policy.gamma, states))

    def _uniform(self, sampler: Any, size: int, epochs: int) -> NDArray[Any]:
        """Sample states within bounds: the same numbers, in one request and one compiled call."""
        bounds = sampler.bounds
        if bounds.dtype.kind != "f":
            states: NDArray[Any] = np.concatenate([sampler.sample(size) for _ in range(epochs)])
            return states.reshape(len(states), -1)
        low, high = bounds.low.ravel(), bounds.high.ravel()
        if self._states.shape != (size * epochs, len(low)):
            self._shares = np.empty((size * epochs, len(low)))
            self._states = np.empty(self._shares.shape, np.float32)
        sampler._generator.random(out=self._shares)
        if not updates.between(self._shares, low, high, self._states):
            sampler.sample(size)  # raises the error
        return self._states


def _rows(fields: dict[str, Any], network: FlatNetwork) -> list[NDArray[Any]] | None:
    """Return the arrays of a storage, a row for each observation; None where they do not fit."""
    arrays: list[Any] = [
        fields.get(name) for name in ("obs", "act", "rew", "terminated", "obs_next")
    ]
    if not all(type(array) is np.ndarray and array.flags.c_contiguous for array in arrays):
        return None
    obs, act, reward, terminated, obs_next = arrays
    stored_as = np.bool_ if network.shape else np.float32
    kinds = [array.dtype for array in arrays]
    if kinds != [stored_as, np.int64, np.float64, np.bool_, stored_as] or reward.ndim > 1:
        return None
    if not (network.takes(obs) and network.takes(obs_next)):
        return None
    return [network.as_input(obs), act, reward, terminated, network.as_input(obs_next)]
