"""MeDQN with the same results, sooner."""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import ReplayBuffer
from tianshou.data.batch import BatchProtocol
from tianshou.data.types import BatchWithReturnsProtocol, RolloutBatchProtocol
from tianshou.policy import DQNPolicy

from medqn_tianshou.algorithm.policy import (
    MeDQNPolicy,
    MeDQNTrainingStats,
    Terms,
    network_input,
)
from medqn_tianshou.algorithm.samplers import Observations, RealStateSampler
from medqn_tianshou.fast.acting import choose_actions
from medqn_tianshou.fast.compiled import CompiledLoss, CompiledNetwork
from medqn_tianshou.fast.known import KnownNetwork, KnownNetworks
from medqn_tianshou.fast.optimizers import clip_gradient
from medqn_tianshou.fast.passes import action_values
from medqn_tianshou.fast.targets import SingleFetch, join, nstep_returns


class FastMeDQNPolicy(MeDQNPolicy):
    """:class:`MeDQNPolicy` with the same results in less time.

    Each observation of an update is read once; TD batch and consolidation states share a forward
    pass; no pass is made whose result is not used; small networks on the CPU act and learn through
    compiled code.

    All of this needs to know the network and the policy in full. Where a subclass overrides a
    method that would be skipped, or the network is not one of ours with plain layers and without
    hooks, :class:`MeDQNPolicy`'s code runs instead.

    :param compiled: use code compiled by numba, where it applies. The results are those of torch
        up to rounding. With False, they differ from :class:`MeDQNPolicy`'s only by the rounding of
        forward passes over joined batches, and without consolidation not at all.
    :param options: the arguments of :class:`MeDQNPolicy`.
    """

    def __init__(
        self, *, action_space: gym.spaces.Discrete, compiled: bool = True, **options: Any
    ) -> None:
        super().__init__(action_space=action_space, **options)
        self.max_action_num = int(action_space.n)  # known before the first forward pass
        self.compiled = compiled
        # Other losses take torch's passes throughout, so that equal networks have distance 0.
        self._learns_compiled = compiled and self.consolidation_kind == "mse"
        self._compiled_loss = CompiledLoss(
            huber=self.clip_loss_grad, per_action=self.consolidation_reduction == "mean"
        )
        self._networks = KnownNetworks()
        self._inspected: tuple[KnownNetwork, KnownNetwork] | None = None
        self._samples: deque[_Sample] = deque()

    @staticmethod
    def _compile() -> None:
        """Skip Tianshou's compilation of functions that may never be called: it takes seconds."""

    # Where the plain code must run.

    def _keeps(self, methods: dict[str, Any]) -> bool:
        """Whether methods are those that a fast path stands for, and the policy has no hooks."""
        cls, own = type(self), vars(self)
        return (
            all(getattr(cls, name) is method for name, method in methods.items())
            and methods.keys().isdisjoint(own)
            and not (self._forward_hooks or self._forward_pre_hooks)
        )

    @property
    def chooses_quickly(self) -> bool:
        """Whether :meth:`choose_actions` gives the result of the methods that it stands for."""
        return self._keeps(_ACTING)

    def _known(self) -> tuple[KnownNetwork, KnownNetwork] | None:
        """Return what is known of both networks, or None where the plain code must run."""
        if not self._keeps(_EVALUATING):
            return None
        online, target = self._networks.of(self.model), self._networks.of(self.model_old)
        return None if online is None or target is None else (online, target)

    # Acting.

    def train(self, mode: bool = True) -> Self:
        """Switch the network to training or evaluation mode."""
        known = self._networks.of(self.model)
        if known is None:
            return super().train(mode)
        self.__dict__["training"] = mode  # nn.Module's own assignment is slow
        known.train(mode)
        return self

    def choose_actions(
        self,
        obs: NDArray[Any],
        *,
        explore: bool,
        model: torch.nn.Module | None = None,
        eps: float | None = None,
    ) -> NDArray[np.int64]:
        """Choose as ``forward`` and ``exploration_noise`` do, with the same random numbers.

        Only where :attr:`chooses_quickly` is true.

        :param obs: a batch of observations, without action masks.
        :param model: the network to evaluate; None is the one that learns.
        :param eps: the exploration rate; None is the policy's.
        """
        network = self.model if model is None else model
        return choose_actions(
            network,
            self._networks.of(network),
            obs,
            eps=(self.eps if eps is None else eps) if explore else 0.0,
            action_count=cast(int, self.max_action_num),
            compiled=self.compiled,
        )

    # Fetching a batch, and its targets.

    def update(
        self, sample_size: int | None, buffer: ReplayBuffer | None, **kwargs: Any
    ) -> MeDQNTrainingStats:
        """Update as Tianshou does, but read each observation once."""
        self._samples.clear()
        if (
            buffer is not None
            and SingleFetch.suits(buffer)
            and self._keeps(_FETCHING)
            and self._known()
        ):
            from_buffer = self._coef > 0 and type(self.state_sampler) is RealStateSampler
            sample_states = partial(self._sample_indices, buffer) if from_buffer else None
            buffer = cast(ReplayBuffer, SingleFetch(buffer, self.n_step, sample_states))
        return super().update(sample_size, buffer, **kwargs)

    def _sample_indices(self, buffer: ReplayBuffer, batch_size: int) -> list[NDArray[np.int_]]:
        """Sample the indices of the consolidation states of each epoch."""
        sampler: Any = self.state_sampler
        size = self.consolidation_batch_size or batch_size
        return [sampler.draw_indices(size, buffer) for _ in range(self.consolidation_epochs)]

    def process_fn(
        self, batch: RolloutBatchProtocol, buffer: ReplayBuffer, indices: NDArray[np.int_]
    ) -> BatchWithReturnsProtocol:
        """Compute the TD targets and sample the consolidation states of all epochs."""
        if not isinstance(buffer, SingleFetch):
            return super().process_fn(batch, buffer, indices)
        self._buffer = buffer.buffer
        states = buffer.states or self._sample_states(len(indices))
        self._samples.extend(map(_Sample, states))
        with_returns = cast(BatchWithReturnsProtocol, batch)
        with_returns.returns = nstep_returns(buffer.steps, self._value(batch.obs_next), self.gamma)
        return with_returns

    def _sample_states(self, batch_size: int) -> list[Observations]:
        if self._coef == 0:
            return []
        size = self.consolidation_batch_size or batch_size
        epochs = range(self.consolidation_epochs)
        return [self.state_sampler.sample(size, self._buffer) for _ in epochs]

    @torch.no_grad()
    def _value(self, obs_next: Any) -> torch.Tensor:
        """Value the successors and the sampled states in one pass of the target network.

        Tianshou's ``_target_q`` evaluates the online network as well, which only double DQN needs.
        """
        next_input = network_input(obs_next)
        sync_is_due = -self._iter % self.freq < self.consolidation_epochs
        if self._samples and not sync_is_due:
            inputs = [*(sample.states for sample in self._samples), next_input]
            *samples_q_SA, target_q_BA = self._q(self.model_old, join(inputs)).tensor_split(
                np.cumsum([len(states) for states in inputs[:-1]]).tolist()
            )
            for sample, sample_q_SA in zip(self._samples, samples_q_SA, strict=True):
                sample.target_q_SA = sample_q_SA
        else:
            target_q_BA = self._q(self.model_old, next_input)
        if not self.is_double:
            return target_q_BA.max(dim=1).values
        q_BA = self._q(self.model, next_input)
        q_BA = self.compute_q_value(q_BA, getattr(obs_next, "mask", None))
        return target_q_BA.gather(1, q_BA.argmax(dim=1, keepdim=True)).flatten()

    def post_process_fn(
        self, batch: BatchProtocol, buffer: ReplayBuffer, indices: NDArray[np.int_]
    ) -> None:
        """Update priorities, and release what belongs to the buffer."""
        super().post_process_fn(batch, buffer, indices)
        self._samples.clear()

    # Learning.

    def learn(self, batch: RolloutBatchProtocol, *args: Any, **kwargs: Any) -> MeDQNTrainingStats:
        """Take the gradient steps of :class:`MeDQNPolicy`; inspect the networks once for all."""
        self.__dict__["_inspected"] = self._known()  # nn.Module's own assignment is slow
        try:
            return super().learn(batch, *args, **kwargs)
        finally:
            self.__dict__["_inspected"] = None

    def _differentiate(
        self, batch: RolloutBatchProtocol, weight_B: Any
    ) -> tuple[Terms, torch.Tensor]:
        obs = network_input(batch.obs)
        known = self._inspected
        if known is None or weight_B is not None or not self._is_compiled(known[0], obs):
            return super()._differentiate(batch, weight_B)
        network = cast(CompiledNetwork, known[0].compiled)
        act_B: Any = batch.act
        both, target_q_SA = obs, np.empty((0, len(network.biases[-1])), np.float32)
        if self._coef > 0:
            sample = self._next_sample(len(obs))
            both, target_q_SA = join((obs, sample.states)), self._target_values(sample).numpy()
        td_loss, consolidation, td_error_B = self._compiled_loss.differentiate(
            network, both, act_B, batch.returns.flatten().numpy(), target_q_SA, self._coef
        )
        if self.max_grad_norm is not None:
            clip_gradient(known[0].parameters, self.max_grad_norm)
        terms = [td_loss, td_loss + self._coef * consolidation]
        terms = [*terms, consolidation] if self._coef > 0 else terms
        return terms, torch.from_numpy(td_error_B)

    def _is_compiled(self, online: KnownNetwork, obs: Any) -> bool:
        return (
            self._learns_compiled
            and online.compiled is not None
            and online.compiled.takes(obs)
            and online.is_trained_plainly
            and online.is_optimized_by(self.optim)
        )

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

    def _next_sample(self, batch_size: int) -> "_Sample":
        if not self._samples:
            self._samples.extend(map(_Sample, self._sample_states(batch_size)))
        return self._samples.popleft()

    @torch.no_grad()
    def _target_values(self, sample: "_Sample") -> torch.Tensor:
        if sample.target_q_SA is None:  # not known yet, or the target network has just changed
            sample.target_q_SA = self._q(self.model_old, sample.states)
        return sample.target_q_SA

    def _q(self, network: torch.nn.Module, obs: Any) -> torch.Tensor:
        """Evaluate one of the two networks, both of which are known."""
        if self._learns_compiled and not torch.is_grad_enabled():
            known = self._networks.of(network)
            if known is not None and known.compiled and known.compiled.takes(obs):
                return torch.from_numpy(known.compiled.forward(obs)[0])
        return action_values(network, obs, compiled=self.compiled)

    @staticmethod
    def _means(steps: list[Terms]) -> list[float]:
        if isinstance(steps[0][0], float):
            return [sum(column) / len(steps) for column in zip(*steps, strict=True)]
        return MeDQNPolicy._means(steps)


@dataclass
class _Sample:
    """Consolidation states of one epoch, and their target values once they were computed."""

    states: Observations
    target_q_SA: torch.Tensor | None = None


_EVALUATING = {"forward": DQNPolicy.forward, "compute_q_value": DQNPolicy.compute_q_value}
"""What a pass of a network that bypasses ``forward`` stands for."""
_ACTING = {**_EVALUATING, "exploration_noise": DQNPolicy.exploration_noise}
_FETCHING = {
    **{name: getattr(DQNPolicy, name) for name in ("_target_q", "compute_nstep_return")},
    **{name: getattr(FastMeDQNPolicy, name) for name in ("process_fn", "learn", "post_process_fn")},
}
"""What uses the batch or the buffer, of which :class:`SingleFetch` shows only a part."""
