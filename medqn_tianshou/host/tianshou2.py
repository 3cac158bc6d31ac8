"""MeDQN as an algorithm of Tianshou 2.0, and the names of this version that the package uses."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.algorithm.algorithm_base import Policy
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import SimpleLossTrainingStats
from tianshou.algorithm.optim import OptimizerFactory, TorchOptimizerFactory
from tianshou.data import ReplayBuffer
from tianshou.data.types import BatchWithReturnsProtocol, ObsBatchProtocol, RolloutBatchProtocol

from medqn_tianshou.algorithm.consolidation import EXTRA_STATE, Consolidation
from medqn_tianshou.algorithm.loss import ConsolidationKind, Reduction
from medqn_tianshou.algorithm.samplers import StateSampler
from medqn_tianshou.algorithm.schedules import Schedule
from medqn_tianshou.algorithm.stats import LossTerms
from medqn_tianshou.host.tianshou2_training import Logger, Trainer, named

__all__ = [
    "ACTING",
    "EVALUATING",
    "HEADS",
    "UPDATING",
    "Agent",
    "Logger",
    "MeDQN",
    "MeDQNTrainingStats",
    "Policy",
    "Trainer",
    "explore",
    "make_agent",
]


@dataclass(kw_only=True)
class MeDQNTrainingStats(LossTerms, SimpleLossTrainingStats):
    """The terms of the loss, averaged over the epochs of one update.

    ``loss`` is ``td_loss + consolidation_coef * consolidation_loss``. The latter is None if the
    coefficient is 0, because the term is then not computed.
    """


class MeDQN(DQN[DiscreteQLearningPolicy], Consolidation[MeDQNTrainingStats]):
    """Memory-efficient DQN (Lan et al., TMLR 2023): MeDQN(U) and MeDQN(R), by state sampler.

    Each update keeps the Q network close to its own target network on sampled states::

        loss = TD loss + consolidation_coef * distance(Q(s, .), Q_target(s, .))

    With coefficient 0 and one epoch, it learns exactly the parameters of
    :class:`~tianshou.algorithm.DQN`. It accepts all arguments of that class; those below are added
    or differ.

    A uniform sampler needs every state: pass :meth:`observe_step` to the training collector as
    ``on_step_hook``. A schedule needs the environment step: call :meth:`set_env_step` in
    ``training_fn``.

    :param target_update_freq: gradient steps between copies of the network to its target network.
        It must be at least 1: consolidation needs a target network.
    :param is_double: use double DQN; the paper's experiments do not.
    :param huber_loss_delta: Huber TD loss. Unlike the base class, it respects prioritized weights.
    :param state_sampler: samples the states to consolidate on; None is :class:`RealStateSampler`.
    :param consolidation_coef: the paper's lambda, a number, a schedule by environment step, or an
        :class:`AdaptiveCoefficient`.
    :param consolidation_epochs: the paper's E: gradient steps per mini-batch. The TD targets are
        computed once per mini-batch; the consolidation states are sampled for each gradient step.
    :param consolidation_batch_size: number of consolidation states; None is the batch size.
    :param consolidation_loss: ``"mse"``, ``"huber"`` or ``"kl"``.
    :param consolidation_reduction: ``"mean"`` or ``"sum"`` over actions.
    :param max_grad_norm: clip the gradient to this norm; None does not clip.
    """

    stats_class = MeDQNTrainingStats

    def __init__(
        self,
        *,
        policy: DiscreteQLearningPolicy,
        optim: OptimizerFactory,
        target_update_freq: int,
        gamma: float = 0.99,
        n_step_return_horizon: int = 1,
        is_double: bool = True,
        huber_loss_delta: float | None = None,
        state_sampler: StateSampler | None = None,
        consolidation_coef: float | Schedule = 1.0,
        consolidation_epochs: int = 1,
        consolidation_batch_size: int | None = None,
        consolidation_loss: ConsolidationKind = "mse",
        consolidation_reduction: Reduction = "mean",
        max_grad_norm: float | None = None,
    ) -> None:
        super().__init__(
            policy=policy,
            optim=optim,
            gamma=gamma,
            n_step_return_horizon=n_step_return_horizon,
            target_update_freq=target_update_freq,
            is_double=is_double,
            huber_loss_delta=huber_loss_delta,
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

    def _preprocess_batch(
        self, batch: RolloutBatchProtocol, buffer: ReplayBuffer, indices: NDArray[np.int_]
    ) -> BatchWithReturnsProtocol:
        return self._prepare(super()._preprocess_batch, batch, buffer, indices)

    def _update_with_batch(self, batch: RolloutBatchProtocol) -> MeDQNTrainingStats:
        """Take E gradient steps on a batch (Algorithm 1, lines 12 to 18; Algorithm 3, 11 to 17)."""
        return self._take_gradient_steps(batch)

    def _forward(self, batch: Any, *, target: bool = False) -> torch.Tensor:
        return self.policy(batch, model=self.model_old if target else None).logits

    # Tianshou's names, by which Consolidation and the rest of the package know them.

    acting = named("policy")
    model = named("policy.model")
    action_space = named("policy.action_space")
    is_within_training_step = named("policy.is_within_training_step")
    target_model = named("model_old.module")
    torch_optim = named("optim._optim")
    huber_delta = named("huber_loss_delta")

    @property
    def lr_scheduler(self) -> Any:
        """The learning-rate schedule, if any."""
        return self.lr_schedulers[0] if self.lr_schedulers else None

    @property
    def eps(self) -> float:
        """The current exploration rate."""
        policy = self.policy
        return policy.eps_training if policy.is_within_training_step else policy.eps_inference

    def set_eps(self, eps: float) -> None:
        """Set the exploration rate, in training and otherwise."""
        self.policy.set_eps_training(eps)
        self.policy.set_eps_inference(eps)

    def sync_weight(self) -> None:
        """Copy the network to its target network."""
        self._update_lagged_network_weights()

    def parameters_by_name(self) -> dict[str, torch.Tensor]:
        """Return both networks and the extra state as files contain them, with any Tianshou."""
        networks = {"model": self.model, "model_old": self.target_model}
        named = {f"{key}.": network.state_dict() for key, network in networks.items()}
        parameters = {key + name: value for key, d in named.items() for name, value in d.items()}
        return {**parameters, EXTRA_STATE: self.get_extra_state()}

    def load_parameters_by_name(self, parameters: dict[str, torch.Tensor]) -> None:
        """Take what :meth:`parameters_by_name` returned."""
        self.set_extra_state(parameters.pop(EXTRA_STATE, None))
        networks = torch.nn.ModuleDict({"model": self.model, "model_old": self.target_model})
        networks.load_state_dict(parameters)


Agent = MeDQN


class _UncompiledPolicy(DiscreteQLearningPolicy):
    """Does not compile functions that may never be called, which takes seconds."""

    @staticmethod
    def _compile() -> None:
        pass


def make_agent(
    agent_class: type[Agent],
    *,
    model: torch.nn.Module,
    optimizer: tuple[type[torch.optim.Optimizer], dict[str, Any]],
    action_space: gym.spaces.Discrete,
    observation_space: gym.Space[Any] | None = None,
    n_step: int,
    huber: bool,
    **options: Any,
) -> Agent:
    """Build an agent with its optimizer, which is given as a class and its arguments.

    :param options: arguments that have the same name in all versions.
    """
    optimizer_class, arguments = optimizer
    return agent_class(
        policy=_UncompiledPolicy(
            model=model, action_space=action_space, observation_space=observation_space
        ),
        optim=TorchOptimizerFactory(optimizer_class, **arguments),
        n_step_return_horizon=n_step,
        huber_loss_delta=1.0 if huber else None,
        **options,
    )


def explore(policy: Policy, act: NDArray[Any], batch: ObsBatchProtocol) -> NDArray[Any]:
    """Replace some actions by random ones."""
    return policy.add_exploration_noise(act, batch)


HEADS: dict[str, Any] = {}
"""Empty: distributional heads need Tianshou 1.2."""
EVALUATING: dict[str, Any] = {
    "forward": DiscreteQLearningPolicy.forward,
    "compute_q_value": DiscreteQLearningPolicy.compute_q_value,
}
"""Methods of the acting object that a plain pass of a network replaces."""
ACTING: dict[str, Any] = {
    **EVALUATING,
    "add_exploration_noise": DiscreteQLearningPolicy.add_exploration_noise,
    "map_action": DiscreteQLearningPolicy.map_action,
}
"""Methods of the acting object that a fast choice of actions replaces."""
UPDATING = (
    "_target_q", "compute_nstep_return", "_preprocess_batch", "_update_with_batch",
    "_postprocess_batch", "_update_lagged_network_weights",
)  # fmt: skip
"""Methods of an agent that a fast update replaces."""
