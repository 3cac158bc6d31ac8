"""Knowledge consolidation: what MeDQN adds to DQN, for all versions of Tianshou."""

import json
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import isfinite
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer, to_torch_as
from tianshou.data.types import BatchWithReturnsProtocol, RolloutBatchProtocol
from torch.nn import functional as F  # noqa: N812

from medqn_tianshou.algorithm.adaptive import AdaptiveCoefficient, relative_drift
from medqn_tianshou.algorithm.loss import (
    ConsolidationKind,
    Reduction,
    consolidation_loss,
    validate_consolidation_options,
)
from medqn_tianshou.algorithm.samplers import RealStateSampler, StateSampler, network_input
from medqn_tianshou.algorithm.schedules import ConstantSchedule, Schedule, require_coef
from medqn_tianshou.algorithm.stats import LossTerms, NonFiniteLossError

EXTRA_STATE = "_extra_state"
"""The key in ``state_dict`` under which torch stores what is not a parameter."""
Terms = list[Any]
"""TD loss and total loss of one gradient step; with consolidation, also its loss and the drift."""
Stats = TypeVar("Stats", bound=LossTerms)
ComputeReturns = Callable[
    [RolloutBatchProtocol, ReplayBuffer, NDArray[np.int_]], BatchWithReturnsProtocol
]


class Consolidation(torch.nn.Module, Generic[Stats], ABC):
    """Mixin that turns Tianshou's DQN into memory-efficient DQN (Lan et al., TMLR 2023).

    Each update keeps the Q network close to its own target network on sampled states::

        loss = TD loss + consolidation_coef * distance(Q(s, .), Q_target(s, .))

    A subclass also inherits from a DQN of Tianshou, and maps its names to those used here.
    """

    model: torch.nn.Module
    """The network that learns."""
    target_model: torch.nn.Module
    """Its target network."""
    torch_optim: torch.optim.Optimizer
    target_update_freq: int
    huber_delta: float | None
    """The TD error above which the TD loss is linear; None: always quadratic."""
    stats_class: type[Stats]
    _iter: int

    @abstractmethod
    def sync_weight(self) -> None:
        """Copy the network to its target network."""

    @abstractmethod
    def _forward(self, batch: Any, *, target: bool = False) -> torch.Tensor:
        """Return the action values of a batch, by Tianshou's own forward pass."""

    def _set_up_consolidation(
        self,
        *,
        state_sampler: StateSampler | None,
        consolidation_coef: float | Schedule,
        consolidation_epochs: int,
        consolidation_batch_size: int | None,
        consolidation_loss: ConsolidationKind,
        consolidation_reduction: Reduction,
        max_grad_norm: float | None,
    ) -> None:
        for name, value in (
            ("consolidation_epochs", consolidation_epochs),
            ("target_update_freq", self.target_update_freq),
            ("consolidation_batch_size", consolidation_batch_size),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"max_grad_norm={max_grad_norm} must be positive; None does not clip")
        validate_consolidation_options(consolidation_loss, consolidation_reduction)
        self.state_sampler = RealStateSampler() if state_sampler is None else state_sampler
        self.consolidation_epochs = consolidation_epochs
        self.consolidation_batch_size = consolidation_batch_size
        self.consolidation_kind = consolidation_loss
        self.consolidation_reduction = consolidation_reduction
        self.max_grad_norm = max_grad_norm
        self._schedule: Schedule
        if callable(consolidation_coef):
            self._schedule = consolidation_coef
            timeless = ConstantSchedule | AdaptiveCoefficient
            self._env_step_is_known = isinstance(consolidation_coef, timeless)
            self._coef = require_coef(consolidation_coef(0))
        else:
            self.set_consolidation_coef(consolidation_coef)
        self._buffer: Callable[[], Any] = _no_buffer

    @property
    def consolidation_coef(self) -> float:
        """The current coefficient."""
        return self._coef

    def set_consolidation_coef(self, value: float) -> None:
        """Fix the coefficient; this replaces any schedule."""
        self._coef = require_coef(value)
        self._schedule = ConstantSchedule(self._coef)
        self._env_step_is_known = True

    @property
    def adaptive_coef(self) -> AdaptiveCoefficient | None:
        """The adaptive coefficient; None if the coefficient depends only on the step."""
        return self._schedule if isinstance(self._schedule, AdaptiveCoefficient) else None

    def set_env_step(self, env_step: int) -> None:
        """Set the coefficient to its schedule's value; to be called in ``train_fn``."""
        self._coef = require_coef(self._schedule(env_step))
        self._env_step_is_known = True

    @property
    def gradient_steps(self) -> int:
        """Gradient steps taken so far; each epoch counts."""
        return self._iter

    def set_gradient_steps(self, count: int) -> None:
        """Set the counter of gradient steps, which decides when the target network is updated."""
        self._iter = count

    def get_extra_state(self) -> torch.Tensor:
        """Return what else ``state_dict`` contains: the gradient steps, and the sampler's state.

        JSON as a tensor, because code that handles state dicts expects tensors in them.
        """
        sampler = self.state_sampler
        state: dict[str, Any] = {"gradient_steps": self._iter, "sampler": type(sampler).__name__}
        if getattr(sampler, "saved_with_policy", True):
            state["sampler_state"] = sampler.state_dict()
        if self.adaptive_coef is not None:
            state["coef"] = self._coef
        text = json.dumps(state, default=lambda array: array.tolist())
        return torch.frombuffer(bytearray(text, "utf-8"), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor | None) -> None:
        """Restore what :meth:`get_extra_state` returned.

        If the saved sampler is of another kind, this one keeps its own state. None changes nothing:
        state dicts of ``DQNPolicy`` and of earlier versions contain only the networks.
        """
        if state is None:
            return
        content = json.loads(bytes(state.tolist()))
        self.set_gradient_steps(content["gradient_steps"])
        if "sampler_state" in content and content["sampler"] == type(self.state_sampler).__name__:
            self.state_sampler.load_state_dict(content["sampler_state"])
        if self.adaptive_coef is not None and "coef" in content:
            self._coef = self.adaptive_coef.load(content["coef"])

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        state_dict.setdefault(f"{prefix}{EXTRA_STATE}", None)  # not an error where it is missing
        super()._load_from_state_dict(state_dict, prefix, *args)

    def observe_step(self, action_batch: Any, rollout_batch: RolloutBatchProtocol) -> None:
        """Pass a step's states to the sampler: an ``on_step_hook`` for the training collector.

        The sampler receives the states that the agent acted from. As in the released code, they do
        not include the last state of an episode.
        """
        self.state_sampler.observe(network_input(rollout_batch.obs))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffer": _no_buffer}  # a copy does not copy the buffer

    def _prepare(
        self,
        compute_returns: ComputeReturns,
        batch: RolloutBatchProtocol,
        buffer: ReplayBuffer,
        indices: NDArray[np.int_],
    ) -> BatchWithReturnsProtocol:
        """Compute the TD targets; keep a reference to the buffer, to sample states from it."""
        # A weak reference: with several agents, Tianshou does not call a hook after each update.
        self._buffer = weakref.ref(buffer)
        return compute_returns(batch, buffer, indices)

    def _take_gradient_steps(self, batch: RolloutBatchProtocol) -> Stats:
        """Take E gradient steps on a batch (Algorithm 1, lines 12 to 18; Algorithm 3, 11 to 17)."""
        self._warn_of_unknown_time()
        weight_B = batch.pop("weight", None)
        steps: list[Terms] = []
        for _ in range(self.consolidation_epochs):
            if self._iter % self.target_update_freq == 0:
                self.sync_weight()
            terms, td_error_B = self._differentiate(batch, weight_B)
            self.torch_optim.step()
            self._iter += 1
            steps.append(terms)
        batch.weight = td_error_B  # new priorities, where the buffer has them
        means: list[float] = torch.stack([torch.stack(s) for s in steps]).mean(dim=0).tolist()
        return self._stats(*means)

    def _warn_of_unknown_time(self) -> None:
        if not self._env_step_is_known:
            warnings.warn(
                f"consolidation_coef={self._schedule} stays at {self._coef:g}: "
                "call its set_env_step(env_step) in the function that the trainer calls before "
                "each collect",
                stacklevel=4,
            )

    def _stats(self, td_loss: float, loss: float, *of_states: float) -> Stats:
        """Return the statistics of an update, and adapt an adaptive coefficient."""
        consolidation, drift = of_states or (None, None)
        if not isfinite(loss):
            raise NonFiniteLossError(
                f"the loss is {loss} at gradient step {self._iter} (TD loss {td_loss:g})"
            )
        stats = self.stats_class(
            td_loss=td_loss,
            loss=loss,
            consolidation_loss=consolidation,
            consolidation_coef=self._coef,
            consolidation_drift=drift,
        )
        if self.adaptive_coef is not None and drift is not None:
            self._coef = self.adaptive_coef.follow(drift)
        return stats

    def _differentiate(
        self, batch: RolloutBatchProtocol, weight_B: Any
    ) -> tuple[Terms, torch.Tensor]:
        """Compute the loss and its gradient; return the terms of the loss and the TD errors."""
        q_BA, consolidation = self._action_values(batch)
        q_B = q_BA[np.arange(len(q_BA)), batch.act]
        returns_B = to_torch_as(batch.returns.flatten(), q_B)
        if self.huber_delta is None:
            td_loss_B = (returns_B - q_B).pow(2)
        else:
            td_loss_B = F.huber_loss(q_B, returns_B, reduction="none", delta=self.huber_delta)
        td_loss = (td_loss_B if weight_B is None else td_loss_B * weight_B).mean()
        terms = [td_loss, td_loss]
        if consolidation is not None:
            distance = consolidation_loss(
                *consolidation, kind=self.consolidation_kind, reduction=self.consolidation_reduction
            )
            total = td_loss + self._coef * distance
            terms = [td_loss, total, distance, relative_drift(*consolidation)]
        self.torch_optim.zero_grad()
        terms[1].backward()
        if self.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        return [term.detach() for term in terms], (returns_B - q_B).detach()

    def _action_values(self, batch: RolloutBatchProtocol) -> tuple[torch.Tensor, Any]:
        """Return Q of the TD batch, and the pair Q, Q_target of newly sampled states or None."""
        q_BA = self._forward(batch)
        if self._coef == 0:
            return q_BA, None
        size = self.consolidation_batch_size or len(q_BA)
        states: Any = Batch(obs=self.state_sampler.sample(size, self._buffer()), info=Batch())
        with torch.no_grad():
            target_q_SA = self._forward(states, target=True)
        return q_BA, (self._forward(states), target_q_SA)


def _no_buffer() -> None:
    """Stand for the buffer before the first update."""
