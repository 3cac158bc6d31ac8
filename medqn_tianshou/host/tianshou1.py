"""MeDQN as a policy of Tianshou 1.2, and the names of this version that the package uses."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import ReplayBuffer
from tianshou.data.types import BatchWithReturnsProtocol, ObsBatchProtocol, RolloutBatchProtocol
from tianshou.policy import BasePolicy, DQNPolicy
from tianshou.policy.base import TLearningRateScheduler
from tianshou.policy.modelfree.dqn import DQNTrainingStats
from tianshou.trainer import OffpolicyTrainer
from tianshou.utils import TensorboardLogger

from medqn_tianshou.algorithm.consolidation import Consolidation
from medqn_tianshou.algorithm.loss import ConsolidationKind, Reduction
from medqn_tianshou.algorithm.samplers import StateSampler
from medqn_tianshou.algorithm.schedules import Schedule
from medqn_tianshou.algorithm.stats import LossTerms

Policy = BasePolicy[Any]
Trainer = OffpolicyTrainer
Logger = TensorboardLogger


@dataclass(kw_only=True)
class MeDQNTrainingStats(LossTerms, DQNTrainingStats):
    """The terms of the loss, averaged over the epochs of one update.

    ``loss`` is ``td_loss + consolidation_coef * consolidation_loss``. The latter is None if the
    coefficient is 0, because the term is then not computed.
    """


class MeDQNPolicy(DQNPolicy[MeDQNTrainingStats], Consolidation[MeDQNTrainingStats]):
    """Memory-efficient DQN (Lan et al., TMLR 2023): MeDQN(U) and MeDQN(R), by state sampler.

    Each update keeps the Q network close to its own target network on sampled states::

        loss = TD loss + consolidation_coef * distance(Q(s, .), Q_target(s, .))

    With coefficient 0 and one epoch, it learns exactly the parameters of
    :class:`~tianshou.policy.DQNPolicy`. It accepts all arguments of that class; those below are
    added or differ.

    A uniform sampler needs every state: pass :meth:`observe_step` to the training collector as
    ``on_step_hook``. A schedule needs the environment step: call :meth:`set_env_step` in
    ``train_fn``.

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

    stats_class = MeDQNTrainingStats

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
        if reward_normalization:
            raise ValueError("reward_normalization=True is not supported, nor is it by Tianshou")
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
        self._set_up_consolidation(
            state_sampler=state_sampler,
            consolidation_coef=consolidation_coef,
            consolidation_epochs=consolidation_epochs,
            consolidation_batch_size=consolidation_batch_size,
            consolidation_loss=consolidation_loss,
            consolidation_reduction=consolidation_reduction,
            max_grad_norm=max_grad_norm,
        )

    def process_fn(
        self, batch: RolloutBatchProtocol, buffer: ReplayBuffer, indices: NDArray[np.int_]
    ) -> BatchWithReturnsProtocol:
        """Compute the TD targets, and refer to the buffer: :meth:`learn` samples states from it."""
        return self._prepare(super().process_fn, batch, buffer, indices)

    def learn(self, batch: RolloutBatchProtocol, *args: Any, **kwargs: Any) -> MeDQNTrainingStats:
        """Take E gradient steps on a batch (Algorithm 1, lines 12 to 18; Algorithm 3, 11 to 17)."""
        return self._take_gradient_steps(batch)

    def _forward(self, batch: Any, *, target: bool = False) -> torch.Tensor:
        q_BA: torch.Tensor = self(batch, model="model_old" if target else "model").logits
        return q_BA

    # Tianshou's names, by which Consolidation and the rest of the package know them.

    @property
    def acting(self) -> DQNPolicy[Any]:
        """The object that chooses actions: the policy itself."""
        return self

    @property
    def target_model(self) -> torch.nn.Module:  # type: ignore[override]
        """The target network."""
        return self.model_old

    @property
    def torch_optim(self) -> torch.optim.Optimizer:  # type: ignore[override]
        """The optimizer."""
        return self.optim

    @property
    def target_update_freq(self) -> int:  # type: ignore[override]
        """Gradient steps between copies of the network to its target network."""
        return self.freq

    @property
    def huber_delta(self) -> float | None:  # type: ignore[override]
        """The TD error above which the TD loss is linear; None: always quadratic."""
        return 1.0 if self.clip_loss_grad else None

    def parameters_by_name(self) -> dict[str, torch.Tensor]:
        """Return both networks and the extra state as files contain them."""
        return dict(self.state_dict())

    def load_parameters_by_name(self, parameters: dict[str, torch.Tensor]) -> None:
        """Take what :meth:`parameters_by_name` returned."""
        self.load_state_dict(parameters)


Agent = MeDQNPolicy


def make_agent(
    agent_class: type[Agent],
    *,
    model: torch.nn.Module,
    optimizer: tuple[type[torch.optim.Optimizer], dict[str, Any]],
    gamma: float,
    n_step: int,
    huber: bool,
    **options: Any,
) -> Agent:
    """Build an agent with its optimizer, which is given as a class and its arguments.

    :param options: arguments that have the same name in all versions.
    """
    optimizer_class, arguments = optimizer
    return agent_class(
        model=model,
        optim=optimizer_class(model.parameters(), **arguments),
        discount_factor=gamma,
        estimation_step=n_step,
        clip_loss_grad=huber,
        **options,
    )


def explore(policy: Policy, act: NDArray[Any], batch: ObsBatchProtocol) -> NDArray[Any]:
    """Replace some actions by random ones."""
    return policy.exploration_noise(act, batch)


EVALUATING: dict[str, Any] = {
    "forward": DQNPolicy.forward,
    "compute_q_value": DQNPolicy.compute_q_value,
}
"""Methods of the acting object that a plain pass of a network replaces."""
ACTING: dict[str, Any] = {
    **EVALUATING,
    "exploration_noise": DQNPolicy.exploration_noise,
    "map_action": DQNPolicy.map_action,
}
"""Methods of the acting object that a fast choice of actions replaces."""
UPDATING = ("_target_q", "compute_nstep_return", "process_fn", "learn", "post_process_fn")
"""Methods of an agent that a fast update replaces."""
