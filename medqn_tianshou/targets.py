"""TD targets, and the observations they need, without reading anything twice or in vain."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer, ReplayBufferManager, VectorReplayBuffer

from medqn_tianshou.compact import CompactVectorReplayBuffer

Index = NDArray[np.int_]

_PLAIN_BUFFERS = (CompactVectorReplayBuffer, ReplayBuffer, ReplayBufferManager, VectorReplayBuffer)


class SingleFetch:
    """Stands in for a replay buffer in Tianshou's ``update``: each observation is read once.

    Tianshou reads with a batch its successors, which n-step targets do not use, and then both again
    n steps on. Here ``obs_next`` is n steps on to begin with, and nothing else is read.

    :param buffer: a buffer for which :meth:`suits` holds.
    :param n_step: steps of reward before bootstrapping.
    """

    def __init__(self, buffer: ReplayBuffer, n_step: int) -> None:
        self.buffer = buffer
        self.n_step = n_step
        self.steps_NI: Index

    @staticmethod
    def suits(buffer: ReplayBuffer) -> bool:
        """Whether ``sample`` does nothing more for this buffer, such as weighing its draws."""
        return type(buffer) in _PLAIN_BUFFERS

    def sample(self, batch_size: int | None) -> tuple[Batch, Index]:
        """Draw transitions as the buffer does."""
        indices = self.buffer.sample_indices(batch_size)
        self.steps_NI = step_indices(self.buffer, indices, self.n_step)
        if isinstance(self.buffer, CompactVectorReplayBuffer):
            requests = [(indices, "obs"), (self.steps_NI[-1], "obs_next")]
            obs, obs_next = self.buffer.get_observations(requests)
        else:
            obs = self.buffer.get(indices, "obs")
            obs_next = successors(self.buffer, self.steps_NI[-1])
        act = self.buffer.get(indices, "act", stack_num=1)
        return Batch(obs=obs, act=act, obs_next=obs_next), indices


def step_indices(buffer: ReplayBuffer, indices: Index, n_step: int) -> Index:
    """The indices of some transitions and of those that follow, up to the ends of their episodes.

    :return: shape (n_step, indices).
    """
    steps = [indices]
    for _ in range(n_step - 1):
        steps.append(buffer.next(steps[-1]))
    return np.stack(steps)


def successors(buffer: ReplayBuffer, indices: Index) -> Any:
    """Read the successors of some transitions, and nothing else."""
    if isinstance(buffer, CompactVectorReplayBuffer) or buffer._save_obs_next:
        return buffer.get(indices, "obs_next")
    return buffer.get(buffer.next(indices), "obs")


def nstep_returns(
    buffer: ReplayBuffer, steps_NI: Index, value_I: torch.Tensor, gamma: float
) -> torch.Tensor:
    """The targets of Tianshou's ``compute_nstep_return``, bit for bit.

    That one reads rewards and flags of the whole buffer, however few it needs.

    :param buffer: where rewards and flags are.
    :param steps_NI: from :func:`step_indices`.
    :param value_I: values of the successors of the last of them.
    :param gamma: discount factor.
    :return: shape (indices, 1).
    """
    n_step, count = steps_NI.shape
    rew_NI = np.asarray(buffer.get(steps_NI, "rew", stack_num=1), float)
    done_NI = np.asarray(buffer.get(steps_NI, "done", stack_num=1))
    end_NI = done_NI | np.isin(steps_NI, buffer.unfinished_index())
    terminated_I = np.asarray(buffer.get(steps_NI[-1], "terminated", stack_num=1))
    return_I = np.zeros(count)
    length_I = np.full(count, n_step)
    for n in range(n_step - 1, -1, -1):
        length_I[end_NI[n]] = n + 1
        return_I[end_NI[n]] = 0.0
        return_I = rew_NI[n] + gamma * return_I
    discounts = np.cumprod([1.0] + [gamma] * n_step)
    # In double precision, as Tianshou has it.
    factor_I = torch.as_tensor(discounts[length_I] * ~terminated_I, device=value_I.device)
    reward_I = torch.as_tensor(return_I, device=value_I.device)
    return (value_I.double() * factor_I + reward_I).to(value_I.dtype)[:, None]
