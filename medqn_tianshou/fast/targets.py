"""TD targets, and the observations they need, each read from the buffer once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer, ReplayBufferManager, VectorReplayBuffer

from medqn_tianshou.algorithm.networks import to_device
from medqn_tianshou.algorithm.samplers import network_input
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.ring import RingReplayBuffer

Index = NDArray[np.int_]

_PLAIN_BUFFERS = (
    CompactVectorReplayBuffer, RingReplayBuffer, ReplayBuffer, ReplayBufferManager,
    VectorReplayBuffer,
)  # fmt: skip
_READING = {"sample", "get", "next", "unfinished_index"}
"""Methods that a fetch replaces, unless a buffer overrides them with attributes."""
_NO_INFO = Batch()


class SingleFetch:
    """Stands in for a replay buffer in Tianshou's ``update``: each observation is read once.

    Tianshou reads the successors of a batch, which n-step targets do not use, and then observations
    and successors of the transitions n steps later. Here ``obs_next`` is already the successor n
    steps later, and nothing else is read.

    Consolidation states of the buffer are read in the same request: neighbouring states are decoded
    once, and all states end up in one array, which :func:`join` need not copy.

    :param buffer: a buffer for which :meth:`suits` holds.
    :param n_step: steps of reward before bootstrapping.
    :param draw_states: samples the indices of consolidation states for a number of transitions.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        n_step: int,
        draw_states: Callable[[int], list[Index]] | None = None,
    ) -> None:
        self.buffer = buffer
        self.n_step = n_step
        self.steps: Steps
        self.states: list[NDArray[Any]] = []
        self._draw_states = draw_states
        self._fetched: tuple[Index, Any, Any] | None = None

    @staticmethod
    def suits(buffer: ReplayBuffer) -> bool:
        """Whether the buffer's own ``sample`` does nothing more, such as computing weights."""
        return type(buffer) in _PLAIN_BUFFERS and _READING.isdisjoint(vars(buffer))

    def fetch(self, batch_size: int | None) -> tuple[Index, Any, Any]:
        """Sample the transitions that the buffer's own ``sample`` would, once for all calls.

        :return: indices, observations, and successors n steps later.
        """
        if self._fetched is None:
            indices = self.buffer.sample_indices(batch_size)
            drawn = [] if self._draw_states is None else self._draw_states(len(indices))
            if isinstance(self.buffer, CompactVectorReplayBuffer):
                index_NI, (act_NI, *fields), observations = self.buffer.fetch(
                    indices, self.n_step, drawn
                )
                self.steps = Steps.of(self.buffer, index_NI, act_NI[0], *fields)
            elif isinstance(self.buffer, RingReplayBuffer) and self._reads_plainly:
                (act, *own), observations = self.buffer.fetch(indices, drawn)
                index_NI, *fields = (array[None] for array in (indices, *own))
                self.steps = Steps.of(self.buffer, index_NI, act, *fields)
            else:
                self.steps = Steps.read(self.buffer, indices, self.n_step)
                observations = self._read([indices, *drawn], self.steps.index_NI[-1])
            obs, *states, obs_next = observations
            self.states = [network_input(state) for state in states]
            self._fetched = (indices, obs, obs_next)
        return self._fetched

    def sample(self, batch_size: int | None) -> tuple[Batch, Index]:
        """Sample as the buffer does."""
        indices, obs, obs_next = self.fetch(batch_size)
        steps = self.steps
        batch = Batch()
        batch.__dict__.update(  # all of them arrays, or batches: nothing to convert
            obs=obs,
            act=steps.act_I,
            rew=steps.rew_NI[0],
            terminated=steps.terminated_NI[0],
            truncated=steps.truncated_NI[0],
            done=steps.terminated_NI[0] | steps.truncated_NI[0],
            obs_next=obs_next,
            info=_NO_INFO,
        )
        return batch, indices

    @property
    def _reads_plainly(self) -> bool:
        buffer: Any = self.buffer
        return self.n_step == 1 and buffer.is_plain and type(buffer._meta.obs) is np.ndarray

    def _read(self, current: list[Index], last: Index) -> list[Any]:
        """Read observations at some indices, and the successors of the last."""
        buffer = self.buffer
        if buffer._save_obs_next:
            return [*(buffer.get(i, "obs") for i in current), buffer.get(last, "obs_next")]
        parts = [*current, buffer.next(last)]
        stops = np.cumsum([len(index) for index in parts]).tolist()
        whole = buffer.get(np.concatenate(parts), "obs")
        return [whole[stop - len(index) : stop] for index, stop in zip(parts, stops, strict=True)]


@dataclass
class Sample:
    """Consolidation states of one epoch, and their target values once computed."""

    states: NDArray[Any]
    target_q_SA: torch.Tensor | None = None


class Steps(NamedTuple):
    """Some transitions and those that follow, up to the ends of their episodes."""

    index_NI: Index
    act_I: Any
    rew_NI: NDArray[np.float64]
    terminated_NI: NDArray[np.bool_]
    truncated_NI: NDArray[np.bool_]
    end_NI: NDArray[np.bool_]
    """Whether no transition follows: the episode is done, or the next one is not stored yet."""

    @classmethod
    def read(cls, buffer: ReplayBuffer, indices: Index, n_step: int) -> Self:
        """Read all that targets need except observations, only at the given indices."""
        steps = [indices]
        for _ in range(n_step - 1):
            steps.append(buffer.next(steps[-1]))
        index_NI = np.stack(steps)
        keys = ("rew", "terminated", "truncated")
        fields = (np.asarray(buffer.get(index_NI, key, stack_num=1)) for key in keys)
        return cls.of(buffer, index_NI, buffer.get(indices, "act", stack_num=1), *fields)

    @classmethod
    def of(
        cls,
        buffer: ReplayBuffer,
        index_NI: Index,
        act_I: Any,
        rew_NI: NDArray[np.float64],
        terminated_NI: NDArray[np.bool_],
        truncated_NI: NDArray[np.bool_],
    ) -> Self:
        """Compute where nothing follows from the fields that were read."""
        end_NI = terminated_NI | truncated_NI
        if len(index_NI) > 1:
            end_NI |= np.isin(index_NI, buffer.unfinished_index())
        return cls(index_NI, act_I, rew_NI, terminated_NI, truncated_NI, end_NI)


def join(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays, without a copy where they are adjacent in memory."""
    first = arrays[0]
    place = first.ctypes.data
    for array in arrays:
        if (
            array.base is not first.base
            or array.ctypes.data != place
            or not array.flags.c_contiguous
        ):
            return np.concatenate(arrays)
        place += array.nbytes
    if first.base is None:
        return np.concatenate(arrays)
    count = sum(map(len, arrays))
    return np.lib.stride_tricks.as_strided(first, (count, *first.shape[1:]), first.strides)


def nstep_terms(steps: Steps, gamma: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the discounted rewards of n steps, and the factors of the values that follow."""
    if len(steps.index_NI) == 1:
        return steps.rew_NI[0].astype(float), gamma * ~steps.terminated_NI[0]
    n_step, count = steps.index_NI.shape
    return_I = np.zeros(count)
    length_I = np.full(count, n_step)
    for n in range(n_step - 1, -1, -1):
        length_I[steps.end_NI[n]] = n + 1
        return_I[steps.end_NI[n]] = 0.0
        return_I = steps.rew_NI[n] + gamma * return_I
    discounts = np.cumprod([1.0] + [gamma] * n_step)
    return return_I, discounts[length_I] * ~steps.terminated_NI[-1]


def nstep_returns(steps: Steps, value_I: torch.Tensor, gamma: float) -> torch.Tensor:
    """Compute the targets of Tianshou's ``compute_nstep_return``, bit for bit.

    Tianshou's function copies rewards and flags of the whole buffer.

    :param value_I: values of the successors of the last steps.
    :return: shape (indices, 1).
    """
    # In double precision, as Tianshou has it.
    terms = (to_device(array, value_I.device) for array in nstep_terms(steps, gamma))
    reward_I, factor_I = terms
    return (value_I.double() * factor_I + reward_I).to(value_I.dtype)[:, None]
