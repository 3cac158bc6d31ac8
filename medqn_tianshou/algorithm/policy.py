"""MeDQN as a Tianshou policy: DQN's loss plus knowledge consolidation."""

import json
import warnings
import weakref
from collections.abc import Callable
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer, to_torch_as
from tianshou.data.types import BatchWithReturnsProtocol, RolloutBatchProtocol
from tianshou.policy import DQNPolicy
from tianshou.policy.base import TLearningRateScheduler
from torch.nn import functional as F  # noqa: N812

from medqn_tianshou.algorithm.adaptive import AdaptiveCoefficient, relative_drift
from medqn_tianshou.algorithm.loss import (
    ConsolidationKind,
    Reduction,
    consolidation_loss,
    validate_consolidation_options,
)
from medqn_tianshou.algorithm.samplers import RealStateSampler, StateSampler
from medqn_tianshou.algorithm.schedules import ConstantSchedule, Schedule, require_coef
from medqn_tianshou.algorithm.stats import MeDQNTrainingStats, NonFiniteLossError

__all__ = ["MeDQNPolicy", "MeDQNTrainingStats", "NonFiniteLossError"]

EXTRA_STATE = "_extra_state"
"""The key in ``state_dict`` under which torch stores what is not a parameter."""
Terms = list[Any]
"""TD loss and total loss of one gradient step; with consolidation, also its loss and the drift."""


class MeDQNPolicy(DQNPolicy[MeDQNTrainingStats]):
    """Memory-efficient DQN (Lan et al., TMLR 2023): MeDQN(U) and MeDQN(R), by state sampler.

    Each update keeps the Q network close to its own target network on sampled states::

        loss = TD loss + consolidation_coef * distance(Q(s, .), Q_target(s, .))

    With coefficient 0 and one epoch it is :class:`~tianshou.policy.DQNPolicy`, parameter for
    parameter. It accepts all arguments of that class; those below are added or differ.

    A uniform sampler must see every state: pass :meth:`observe_step` to the training collector as
    ``on_step_hook``. A schedule must know the time: call :meth:`set_env_step` in ``train_fn``.

    :param target_update_freq: gradient steps between copies of the network to its target network.
        It must be at least 1: consolidation needs a target network.
    :param is_double: use double DQN; the paper's experiments do not.
    :param clip_loss_grad: Huber TD loss. Unlike the base class, it respects prioritized weights.
    :param state_sampler: samples the states to consolidate on; None is :class:`RealStateSampler`.
    :param consolidation_coef: the paper's lambda, a number, a schedule by environment step, or an
        :class:`AdaptiveCoefficient`.
    :param consolidation_epochs: the paper's E: gradient steps per mini-batch. The TD targets are
        computed once per mini-batch; the consolidation states are sampled for each gradient step.
    :param consolidation_batch_size: number of consolidation states; None is the batch size.
    :param consolidation_loss: ``"mse"``, ``"huber"`` or ``"kl"``.
    :param consolidation_reduction: ``"mean"`` or ``"sum"`` over actions.
    :param max_grad_norm: clip the gradient to this norm; None does not clip.
    :param host_options: arguments of Tianshou's policy that a subclass consolidates.
    """

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        optim: torch.optim.Optimizer,
        action_space: gym.spaces.Discrete,
        target_update_freq: int,
        discount_factor: float = 0.99,
        estimation_step: int = 1,
        reward_normalization: bool = False,
        is_double: bool = True,
        clip_loss_grad: bool = False,
        observation_space: gym.Space[Any] | None = None,
        lr_scheduler: TLearningRateScheduler | None = None,
        state_sampler: StateSampler | None = None,
        consolidation_coef: float | Schedule = 1.0,
        consolidation_epochs: int = 1,
        consolidation_batch_size: int | None = None,
        consolidation_loss: ConsolidationKind = "mse",
        consolidation_reduction: Reduction = "mean",
        max_grad_norm: float | None = None,
        **host_options: Any,
    ) -> None:
        for name, value in (
            ("consolidation_epochs", consolidation_epochs),
            ("target_update_freq", target_update_freq),
            ("consolidation_batch_size", consolidation_batch_size),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"max_grad_norm={max_grad_norm} must be positive; None does not clip")
        if reward_normalization:
            raise ValueError("reward_normalization=True is not supported, nor is it by Tianshou")
        validate_consolidation_options(consolidation_loss, consolidation_reduction)
        super().__init__(
            model=model,
            optim=optim,
            action_space=action_space,
            discount_factor=discount_factor,
            estimation_step=estimation_step,
            target_update_freq=target_update_freq,
            reward_normalization=reward_normalization,
            is_double=is_double,
            clip_loss_grad=clip_loss_grad,
            observation_space=observation_space,
            lr_scheduler=lr_scheduler,
            **host_options,
        )
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
        """What adapts the coefficient; None where it follows the time alone."""
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
        """Go on from what :meth:`get_extra_state` returned.

        Another kind of sampler keeps its own state. None changes nothing: a state dict of
        ``DQNPolicy``, or of an earlier version, has only the networks.
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
        """Show a step's states to the sampler: an ``on_step_hook`` for the training collector.

        These are the states that the agent acted from. As in the released code, the last state of
        an episode is not among them.
        """
        self.state_sampler.observe(network_input(rollout_batch.obs))

    def process_fn(
        self, batch: RolloutBatchProtocol, buffer: ReplayBuffer, indices: NDArray[np.int_]
    ) -> BatchWithReturnsProtocol:
        """Compute the TD targets, and refer to the buffer: :meth:`learn` samples states from it."""
        # Weakly: MultiAgentPolicyManager never calls post_process_fn, which could release it.
        self._buffer = weakref.ref(buffer)
        return super().process_fn(batch, buffer, indices)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffer": _no_buffer}  # a copy of the policy does not copy it

    def learn(self, batch: RolloutBatchProtocol, *args: Any, **kwargs: Any) -> MeDQNTrainingStats:
        """Take E gradient steps on a batch (Algorithm 1, lines 12 to 18; Algorithm 3, 11 to 17)."""
        self._warn_of_unknown_time()
        weight_B = batch.pop("weight", None)
        steps: list[Terms] = []
        for _ in range(self.consolidation_epochs):
            if self._iter % self.freq == 0:
                self.sync_weight()
            terms, td_error_B = self._differentiate(batch, weight_B)
            self.optim.step()
            self._iter += 1
            steps.append(terms)
        batch.weight = td_error_B  # new priorities, where the buffer has them
        means: list[float] = torch.stack([torch.stack(s) for s in steps]).mean(dim=0).tolist()
        return self._stats(*means)

    def _warn_of_unknown_time(self) -> None:
        if not self._env_step_is_known:
            warnings.warn(
                f"consolidation_coef={self._schedule} stays at {self._coef:g}: "
                "call policy.set_env_step(env_step) in the trainer's train_fn",
                stacklevel=3,
            )

    def _stats(self, td_loss: float, loss: float, *of_states: float) -> MeDQNTrainingStats:
        """Report an update, after which an adaptive coefficient moves."""
        consolidation, drift = of_states or (None, None)
        if not isfinite(loss):
            raise NonFiniteLossError(
                f"the loss is {loss} at gradient step {self._iter} (TD loss {td_loss:g})"
            )
        stats = MeDQNTrainingStats(
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
        if self.clip_loss_grad:
            td_loss_B = F.huber_loss(q_B, returns_B, reduction="none")
        else:
            td_loss_B = (returns_B - q_B).pow(2)
        td_loss = (td_loss_B if weight_B is None else td_loss_B * weight_B).mean()
        terms = [td_loss, td_loss]
        if consolidation is not None:
            distance = consolidation_loss(
                *consolidation, kind=self.consolidation_kind, reduction=self.consolidation_reduction
            )
            total = td_loss + self._coef * distance
            terms = [td_loss, total, distance, relative_drift(*consolidation)]
        self.optim.zero_grad()
        terms[1].backward()
        if self.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        return [term.detach() for term in terms], (returns_B - q_B).detach()

    def _action_values(self, batch: RolloutBatchProtocol) -> tuple[torch.Tensor, Any]:
        """Return Q of the TD batch, and the pair Q, Q_target of newly sampled states or None."""
        q_BA = self(batch).logits
        if self._coef == 0:
            return q_BA, None
        size = self.consolidation_batch_size or len(q_BA)
        states: Any = Batch(obs=self.state_sampler.sample(size, self._buffer()), info=Batch())
        with torch.no_grad():
            target_q_SA = self(states, model="model_old").logits
        return q_BA, (self(states).logits, target_q_SA)


def _no_buffer() -> None:
    """Stand for the buffer before the first update."""


def network_input(obs: Any) -> Any:
    """Return the observation itself, where Tianshou wraps it together with an action mask."""
    return obs.obs if hasattr(obs, "obs") else obs
