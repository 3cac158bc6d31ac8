"""MeDQN as a Tianshou policy: DQN's loss plus knowledge consolidation."""

import warnings
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any, Self, cast

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch, ReplayBuffer, to_torch_as
from tianshou.data.batch import BatchProtocol
from tianshou.data.types import BatchWithReturnsProtocol, RolloutBatchProtocol
from tianshou.policy import DQNPolicy
from tianshou.policy.base import TLearningRateScheduler
from tianshou.policy.modelfree.dqn import DQNTrainingStats
from torch.nn import functional as F  # noqa: N812

from medqn_tianshou.algorithm.loss import (
    ConsolidationKind,
    Reduction,
    consolidation_loss,
    validate_consolidation_options,
)
from medqn_tianshou.algorithm.networks import QNetwork, to_device
from medqn_tianshou.algorithm.samplers import Observations, RealStateSampler, StateSampler
from medqn_tianshou.algorithm.schedules import ConstantSchedule, Schedule
from medqn_tianshou.fast.acting import Actor
from medqn_tianshou.fast.compiled import CompiledLoss, CompiledNetwork
from medqn_tianshou.fast.optimizers import clip_gradient
from medqn_tianshou.fast.targets import SingleFetch, Steps, join, nstep_returns, successors

_NO_INFO = Batch()


class NonFiniteLossError(ArithmeticError):
    """The loss, and with it the Q network, is no longer a number."""


@dataclass(kw_only=True)
class MeDQNTrainingStats(DQNTrainingStats):
    """Each term of the loss, averaged over the epochs of one update.

    ``loss`` is ``td_loss + consolidation_coef * consolidation_loss``, averaged likewise.
    """

    td_loss: float
    consolidation_loss: float | None
    """None where the coefficient is 0: the term is not computed then."""
    consolidation_coef: float


class MeDQNPolicy(DQNPolicy[MeDQNTrainingStats]):
    """Memory-efficient DQN (Lan et al., TMLR 2023).

    Each update holds the Q network to its own target network on sampled states::

        loss = TD loss + consolidation_coef * distance(Q(s, .), Q_target(s, .))

    With coefficient 0 and one epoch it is :class:`~tianshou.policy.DQNPolicy`, parameter for
    parameter. All arguments of that class are taken; those below are added or differ.

    A uniform sampler must see every state: pass :meth:`observe_step` to the training collector as
    ``on_step_hook``. A schedule must know the time: call :meth:`set_env_step` in ``train_fn``.

    :param target_update_freq: gradient steps between copies of the network to its target network,
        which is required: consolidation needs it.
    :param is_double: use double DQN; the paper's experiments do not.
    :param clip_loss_grad: Huber TD loss. Unlike the base class, it respects prioritized weights.
    :param state_sampler: draws the states to consolidate on; None is :class:`RealStateSampler`.
    :param consolidation_coef: the paper's lambda, a number or a schedule by environment step.
    :param consolidation_epochs: the paper's E. A mini-batch and its TD targets, computed once, give
        this many gradient steps; the consolidation states are drawn anew for each.
    :param consolidation_batch_size: how many states to draw; None is as many as transitions.
    :param consolidation_loss: ``"mse"``, ``"huber"`` or ``"kl"``.
    :param consolidation_reduction: ``"mean"`` or ``"sum"`` over actions.
    :param max_grad_norm: clip the gradient to this norm; None does not clip.
    :param compiled: take the gradient steps of a small :class:`QNetwork`
        on the CPU through compiled code: faster, and torch's numbers up to rounding.
        Where it does not apply, nothing changes.
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
        compiled: bool = False,
    ) -> None:
        _require_at_least_one("consolidation_epochs", consolidation_epochs)
        _require_at_least_one("target_update_freq", target_update_freq)
        if consolidation_batch_size is not None:
            _require_at_least_one("consolidation_batch_size", consolidation_batch_size)
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
        )
        self.state_sampler = RealStateSampler() if state_sampler is None else state_sampler
        self.consolidation_epochs = consolidation_epochs
        self.consolidation_batch_size = consolidation_batch_size
        self.consolidation_kind = consolidation_loss
        self.consolidation_reduction = consolidation_reduction
        self.max_grad_norm = max_grad_norm
        self._compiled_loss = (
            CompiledLoss(huber=clip_loss_grad, per_action=consolidation_reduction == "mean")
            if compiled and consolidation_loss == "mse"
            else None
        )
        self.max_action_num = int(action_space.n)
        self._actor = Actor(self.max_action_num)
        self._trained = list(model.parameters())
        self._modules_of_model = list(model.modules())
        self._switches_plainly = all(
            type(module).train is torch.nn.Module.train for module in self._modules_of_model
        )
        self.chooses_quickly = (
            type(self).forward is DQNPolicy.forward
            and type(self).exploration_noise is DQNPolicy.exploration_noise
            and type(self).compute_q_value is DQNPolicy.compute_q_value
        )
        """Whether :meth:`choose_actions` is the same as the methods it stands for."""
        self._schedule: Schedule
        if callable(consolidation_coef):
            self._schedule = consolidation_coef
            self._env_step_is_known = isinstance(consolidation_coef, ConstantSchedule)
            self._coef = _require_coef(consolidation_coef(0))
        else:
            self.set_consolidation_coef(consolidation_coef)
        self._buffer: ReplayBuffer | None = None
        self._draws: list[_Draw] = []

    @staticmethod
    def _compile() -> None:
        """Tianshou compiles n-step returns and GAE here; it takes seconds, and none is called."""

    @property
    def consolidation_coef(self) -> float:
        """The coefficient now in force."""
        return self._coef

    @property
    def gradient_steps(self) -> int:
        """Gradient steps taken so far, inner epochs counted."""
        return self._iter

    def set_gradient_steps(self, count: int) -> None:
        """Go on counting from here: the target network's next copy follows from it."""
        self._iter = count

    def set_consolidation_coef(self, value: float) -> None:
        """Fix the coefficient; a schedule given before ends here."""
        self._coef = _require_coef(value)
        self._schedule = ConstantSchedule(self._coef)
        self._env_step_is_known = True

    def set_env_step(self, env_step: int) -> None:
        """Move the coefficient's schedule to an environment step; to be called in ``train_fn``."""
        self._coef = _require_coef(self._schedule(env_step))
        self._env_step_is_known = True

    def observe_step(self, action_batch: Any, rollout_batch: RolloutBatchProtocol) -> None:
        """Show a step's states to the sampler: an ``on_step_hook`` for the training collector.

        :param action_batch: not used, part of Tianshou's interface.
        :param rollout_batch: the transitions about to be stored. Their successors are shown as
            well: the last state of an episode is never an ``obs``.
        """
        self.state_sampler.observe(_network_input(rollout_batch.obs))
        self.state_sampler.observe(_network_input(rollout_batch.obs_next))

    def train(self, mode: bool = True) -> Self:
        """Switch the network to training or evaluation, as collectors and updates keep doing."""
        self.training = mode
        if not self._switches_plainly:
            self.model.train(mode)
            return self
        for module in self._modules_of_model:  # as their train() does, many times as fast
            module.__dict__["training"] = mode
        return self

    def choose_actions(
        self,
        obs: NDArray[Any],
        *,
        explore: bool,
        model: torch.nn.Module | None = None,
        eps: float | None = None,
    ) -> NDArray[np.int64]:
        """Choose as ``forward`` and ``exploration_noise`` do, with the same random draws.

        Where all actions are random, the network is not asked.

        :param obs: a batch of observations, without action masks.
        :param explore: whether to explore.
        :param model: the network to ask; None is the one that learns.
        :param eps: the exploration rate; None is the policy's.
        """
        eps = (self.eps if eps is None else eps) if explore else 0.0
        return self._actor.choose(self.model if model is None else model, obs, eps)

    def update(
        self, sample_size: int | None, buffer: ReplayBuffer | None, **kwargs: Any
    ) -> MeDQNTrainingStats:
        """Update as Tianshou does, but read each observation once."""
        if buffer is not None and SingleFetch.suits(buffer):
            from_buffer = self._coef > 0 and type(self.state_sampler) is RealStateSampler
            draw_states = partial(self._draw_indices, buffer) if from_buffer else None
            buffer = cast(ReplayBuffer, SingleFetch(buffer, self.n_step, draw_states))
        return super().update(sample_size, buffer, **kwargs)

    def _draw_indices(self, buffer: ReplayBuffer, batch_size: int) -> list[NDArray[np.int_]]:
        """Draw the indices of states to consolidate on, for each epoch anew."""
        sampler: Any = self.state_sampler
        size = self.consolidation_batch_size or batch_size
        return [sampler.draw_indices(size, buffer) for _ in range(self.consolidation_epochs)]

    def process_fn(
        self, batch: RolloutBatchProtocol, buffer: ReplayBuffer, indices: NDArray[np.int_]
    ) -> BatchWithReturnsProtocol:
        """Compute the TD targets, once for all epochs, and draw the states to consolidate on."""
        if isinstance(buffer, SingleFetch):
            self._buffer, steps = buffer.buffer, buffer.steps
        else:
            self._buffer, steps = buffer, Steps.read(buffer, indices, self.n_step)
        if isinstance(buffer, SingleFetch) or self.n_step == 1:
            obs_next = batch.obs_next
        else:
            obs_next = successors(buffer, steps.index_NI[-1])
        if isinstance(buffer, SingleFetch) and buffer.states:
            self._draws = [_Draw(states) for states in buffer.states]
        else:
            self._draws = self._draw_states(len(indices))
        with_returns = cast(BatchWithReturnsProtocol, batch)
        with_returns.returns = nstep_returns(steps, self._value(obs_next), self.gamma)
        if hasattr(batch, "weight"):
            batch.weight = to_torch_as(batch.weight, with_returns.returns)
        return with_returns

    def _draw_states(self, batch_size: int) -> list["_Draw"]:
        """Draw the states to consolidate on, for each epoch anew."""
        if self._coef == 0:
            return []
        size = self.consolidation_batch_size or batch_size
        buffer: Any = self._buffer
        epochs = range(self.consolidation_epochs)
        return [_Draw(self.state_sampler.sample(size, buffer)) for _ in epochs]

    @torch.no_grad()
    def _value(self, obs_next: Any) -> torch.Tensor:
        """Value the successors, and the states drawn, in one pass of the target network.

        Unlike in the base class, no forward pass is thrown away.
        """
        next_input = _network_input(obs_next)
        if self._draws and not self._sync_is_due:
            inputs = [*(draw.states for draw in self._draws), next_input]
            *draws_q_BA, target_q_BA = self._q(self.model_old, join(inputs)).tensor_split(
                np.cumsum([len(states) for states in inputs[:-1]]).tolist()
            )
            for draw, draw_q_BA in zip(self._draws, draws_q_BA, strict=True):
                draw.target_q_BA = draw_q_BA
        else:
            target_q_BA = self._q(self.model_old, next_input)
        if not self.is_double:
            return target_q_BA.max(dim=1).values
        q_BA = self._q(self.model, next_input)
        q_BA = self.compute_q_value(q_BA, getattr(obs_next, "mask", None))
        return target_q_BA.gather(1, q_BA.argmax(dim=1, keepdim=True)).flatten()

    @property
    def _sync_is_due(self) -> bool:
        """Whether the target network changes within the next update."""
        return -self._iter % self.freq < self.consolidation_epochs

    def post_process_fn(
        self, batch: BatchProtocol, buffer: ReplayBuffer, indices: NDArray[np.int_]
    ) -> None:
        """Update priorities, and let go of the buffer: a copy of the policy must not copy it."""
        super().post_process_fn(batch, buffer, indices)
        self._buffer, self._draws = None, []

    def learn(self, batch: RolloutBatchProtocol, *args: Any, **kwargs: Any) -> MeDQNTrainingStats:
        """Take ``consolidation_epochs`` gradient steps on a batch (Algorithm 1, lines 12 to 18)."""
        if not self._env_step_is_known:
            warnings.warn(
                f"consolidation_coef={self._schedule} stays at {self._coef:g}: "
                "call policy.set_env_step(env_step) in the trainer's train_fn",
                stacklevel=2,
            )
        weight_B = batch.pop("weight", None)
        obs = _network_input(batch.obs)
        returns_B = batch.returns.flatten()
        compiled = self._compiled(self.model, obs) if weight_B is None else None
        act: Any = batch.act if compiled else to_device(batch.act, returns_B.device).long()[:, None]
        draws = self._draws or self._draw_states(len(obs))
        terms: list[list[Any]] = []
        step: list[Any]
        for epoch in range(self.consolidation_epochs):
            if self._iter % self.freq == 0:
                self.sync_weight()
            draw = draws[epoch] if draws else None
            if compiled:
                step, errors_B = self._differentiate_compiled(compiled, obs, act, returns_B, draw)
            else:
                step, errors_B = self._differentiate(obs, act, returns_B, weight_B, draw)
            terms.append(step)
            if self.max_grad_norm is not None:
                clip_gradient(self._trained, self.max_grad_norm)
            self.optim.step()
            self._iter += 1
        batch.weight = errors_B  # new priorities, where the buffer has them
        means = _means(terms)
        if not isfinite(means[1]):
            raise NonFiniteLossError(
                f"the loss is {means[1]} at gradient step {self._iter} (TD loss {means[0]:g})"
            )
        return MeDQNTrainingStats(
            td_loss=means[0],
            loss=means[1],
            consolidation_loss=means[2] if len(means) > 2 else None,
            consolidation_coef=self._coef,
        )

    def _differentiate(
        self, obs: Any, act_B1: Any, returns_B: Any, weight_B: Any, draw: "_Draw | None"
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Compute the gradient of the loss; give TD loss, loss, consolidation, and TD errors."""
        q_BA, consolidation = self._forward_both(obs, draw)
        q_B = q_BA.gather(1, act_B1).flatten()
        td_loss_B = (
            F.huber_loss(q_B, returns_B, reduction="none")
            if self.clip_loss_grad
            else (returns_B - q_B).pow(2)
        )
        td_loss = (td_loss_B if weight_B is None else td_loss_B * weight_B).mean()
        loss = td_loss if consolidation is None else td_loss + self._coef * consolidation
        for parameter in self._trained:
            parameter.grad = None
        loss.backward()
        terms = [td_loss, loss] if consolidation is None else [td_loss, loss, consolidation]
        return [term.detach() for term in terms], (returns_B - q_B).detach()

    def _differentiate_compiled(
        self, network: CompiledNetwork, obs: Any, act_B: Any, returns_B: Any, draw: "_Draw | None"
    ) -> tuple[list[float], torch.Tensor]:
        """Do the same through compiled code."""
        loss = cast(CompiledLoss, self._compiled_loss)
        both, target_q_SA = obs, np.empty((0, self._actor.action_count), np.float32)
        if draw is not None:
            both, target_q_SA = join((obs, draw.states)), self._held_to(draw).numpy()
        td_loss, consolidation, errors_B = loss.differentiate(
            network, both, act_B, returns_B.numpy(), target_q_SA, self._coef
        )
        terms = [td_loss, td_loss + self._coef * consolidation]
        return terms if draw is None else [*terms, consolidation], torch.from_numpy(errors_B)

    def _forward_both(
        self, obs: Any, draw: "_Draw | None"
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the action values of the TD batch, and the consolidation loss on drawn states."""
        if draw is None:
            return self._q(self.model, obs), None
        # One pass over both costs less than two.
        both_q_BA = self._q(self.model, join((obs, draw.states)))
        q_BA, states_q_BA = both_q_BA.tensor_split((len(obs),))
        return q_BA, consolidation_loss(
            states_q_BA,
            self._held_to(draw),
            kind=self.consolidation_kind,
            reduction=self.consolidation_reduction,
        )

    @torch.no_grad()
    def _held_to(self, draw: "_Draw") -> torch.Tensor:
        """What the target network says of drawn states."""
        if draw.target_q_BA is None:  # it has just changed
            draw.target_q_BA = self._q(self.model_old, draw.states)
        return draw.target_q_BA

    def _q(self, network: torch.nn.Module, obs: Any) -> torch.Tensor:
        """Action values, without the greedy action that ``forward`` fetches from the device."""
        if not torch.is_grad_enabled() and (compiled := self._compiled(network, obs)):
            return torch.from_numpy(compiled.forward(obs)[0])
        q_BA: torch.Tensor = network(obs, state=None, info=_NO_INFO)[0]
        return q_BA

    def _compiled(self, network: Any, obs: Any) -> CompiledNetwork | None:
        """The compiled passes of a network, where they apply."""
        if self._compiled_loss is None or not isinstance(network, QNetwork):
            return None
        is_plain = isinstance(obs, np.ndarray) and obs.dtype != np.uint8  # bytes may be scaled
        return network.compiled if is_plain else None


@dataclass
class _Draw:
    """States drawn for one epoch, and what the target network says of them, once it was asked."""

    states: Observations
    target_q_BA: torch.Tensor | None = None


def _means(terms: list[list[Any]]) -> list[float]:
    """Average over the steps, with one transfer from the device for all terms."""
    if isinstance(terms[0][0], float):
        return [sum(column) / len(terms) for column in zip(*terms, strict=True)]
    flat = torch.stack([term for step in terms for term in step])
    means: list[float] = flat.view(len(terms), -1).mean(dim=0).tolist()
    return means


def _network_input(obs: Any) -> Any:
    """The observation itself, where an action mask is wrapped around it."""
    return obs.obs if hasattr(obs, "obs") else obs


def _require_coef(value: float) -> float:
    if not (isfinite(value) and value >= 0):
        raise ValueError(f"consolidation_coef={value} must be a number of at least 0")
    return float(value)


def _require_at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name}={value} must be at least 1")
