"""MeDQN with one request to the buffer and one pass of each network per update."""

import weakref
from collections import deque
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import ReplayBuffer
from tianshou.data.types import BatchWithReturnsProtocol, RolloutBatchProtocol

from medqn_tianshou.algorithm.consolidation import ComputeReturns
from medqn_tianshou.algorithm.samplers import Observations, UniformStateSampler, network_input
from medqn_tianshou.fast.known import KnownMethods, KnownNetwork, KnownNetworks, samples_as
from medqn_tianshou.fast.passes import action_values
from medqn_tianshou.fast.targets import Sample, SingleFetch, join, nstep_returns
from medqn_tianshou.host.api import EVALUATING, MeDQNTrainingStats
from medqn_tianshou.host.api import Agent as MeDQN

KEPT_EVALUATING = KnownMethods(**EVALUATING)
"""What a joined pass stands for."""


class JoinedPasses(MeDQN):
    """MeDQN whose TD batch and consolidation states share a pass of each network.

    This requires known networks; with others, the code of the base class runs.

    :param compiled: use compiled code for passes without gradient, where possible.
    :param options: the arguments of the base class.
    """

    def __init__(self, *, compiled: bool, **options: Any) -> None:
        super().__init__(**options)
        self.compiled = compiled
        self._networks = KnownNetworks(flatten=compiled)
        self._inspected: tuple[KnownNetwork, KnownNetwork] | None = None
        self._samples: deque[Sample] = deque()

    def _known(self) -> tuple[KnownNetwork, KnownNetwork] | None:
        """Return both known networks; None if the plain code must evaluate them."""
        online, target = self._networks.of(self.model), self._networks.of(self.target_model)
        return None if online is None or target is None else (online, target)

    def _prepare(
        self,
        compute_returns: ComputeReturns,
        batch: RolloutBatchProtocol,
        buffer: ReplayBuffer,
        indices: NDArray[np.int_],
    ) -> BatchWithReturnsProtocol:
        """Compute the TD targets and sample the consolidation states of all epochs."""
        if not isinstance(buffer, SingleFetch):
            return super()._prepare(compute_returns, batch, buffer, indices)
        self._buffer = weakref.ref(buffer.buffer)
        states = buffer.states or self._by_epoch(self._sample_states(len(indices)))
        self._samples.extend(map(Sample, states))
        with_returns = cast(BatchWithReturnsProtocol, batch)
        with_returns.returns = nstep_returns(buffer.steps, self._value(batch.obs_next), self.gamma)
        return with_returns

    def _sample_states(self, batch_size: int) -> Observations | None:
        """Sample the consolidation states of all epochs, one after another."""
        if self._coef == 0:
            return None
        size = self.consolidation_batch_size or batch_size
        sampler, epochs = self.state_sampler, self.consolidation_epochs
        if samples_as(sampler, UniformStateSampler) and sampler.bounds.dtype.kind == "f":
            return sampler.sample(size * epochs)  # the same random numbers in one request
        return np.concatenate([sampler.sample(size, self._buffer()) for _ in range(epochs)])

    def _by_epoch(self, states: Observations | None) -> list[Observations]:
        return [] if states is None else np.split(states, self.consolidation_epochs)

    @torch.no_grad()
    def _value(self, obs_next: Any) -> torch.Tensor:
        """Evaluate the successors and the sampled states in one pass of the target network.

        Tianshou's ``_target_q`` evaluates the online network as well, which only double DQN needs.
        """
        next_input = network_input(obs_next)
        sync_is_due = -self._iter % self.target_update_freq < self.consolidation_epochs
        if self._samples and not sync_is_due:
            inputs = [*(sample.states for sample in self._samples), next_input]
            *samples_q_SA, target_q_BA = self._q(self.target_model, join(inputs)).tensor_split(
                np.cumsum([len(states) for states in inputs[:-1]]).tolist()
            )
            for sample, sample_q_SA in zip(self._samples, samples_q_SA, strict=True):
                sample.target_q_SA = sample_q_SA
        else:
            target_q_BA = self._q(self.target_model, next_input)
        if not self.is_double:
            return target_q_BA.max(dim=1).values
        q_BA = self._q(self.model, next_input)
        q_BA = self.acting.compute_q_value(q_BA, getattr(obs_next, "mask", None))
        return target_q_BA.gather(1, q_BA.argmax(dim=1, keepdim=True)).flatten()

    def _take_gradient_steps(self, batch: RolloutBatchProtocol) -> MeDQNTrainingStats:
        """Take the gradient steps of the base class; inspect the networks once for all."""
        known = self._known() if KEPT_EVALUATING.are_kept_by(self.acting) else None
        self.__dict__["_inspected"] = known  # nn.Module's own assignment is slow
        try:
            return super()._take_gradient_steps(batch)
        finally:
            self.__dict__["_inspected"] = None

    def _action_values(self, batch: RolloutBatchProtocol) -> tuple[torch.Tensor, Any]:
        """Evaluate the TD batch and the consolidation states in one pass of each network."""
        if self._inspected is None:
            return super()._action_values(batch)
        obs = network_input(batch.obs)
        if self._coef == 0:
            return self._q(self.model, obs), None
        sample = self._next_sample(len(obs))
        target_q_SA = self._target_values(sample)
        q_BA, states_q_SA = self._q(self.model, join((obs, sample.states))).tensor_split(
            (len(obs),)
        )
        return q_BA, (states_q_SA, target_q_SA)

    def _next_sample(self, batch_size: int) -> Sample:
        if not self._samples:
            self._samples.extend(map(Sample, self._by_epoch(self._sample_states(batch_size))))
        return self._samples.popleft()

    @torch.no_grad()
    def _target_values(self, sample: Sample) -> torch.Tensor:
        if sample.target_q_SA is None:  # not known yet, or the target network has just changed
            sample.target_q_SA = self._q(self.target_model, sample.states)
        return sample.target_q_SA

    def _q(self, network: torch.nn.Module, obs: Any) -> torch.Tensor:
        return action_values(network, obs, compiled=self.compiled)
