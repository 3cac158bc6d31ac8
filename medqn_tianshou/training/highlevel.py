"""MeDQN in Tianshou's high-level API, like its ``DQNExperimentBuilder``."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from tianshou.highlevel.agent import DiscreteCriticOnlyAgentFactory
from tianshou.highlevel.env import Environments
from tianshou.highlevel.experiment import DQNExperimentBuilder, Experiment
from tianshou.highlevel.params.policy_params import DQNParams, ParamTransformerData
from tianshou.highlevel.persistence import PolicyPersistence
from tianshou.highlevel.world import World
from tianshou.policy import BasePolicy
from tianshou.trainer import OffpolicyTrainer

from medqn_tianshou.algorithm.loss import ConsolidationKind, Reduction
from medqn_tianshou.algorithm.samplers import Sampling, make_state_sampler
from medqn_tianshou.algorithm.schedules import Schedule
from medqn_tianshou.fast.policy import FastMeDQNPolicy
from medqn_tianshou.host.tianshou1 import MeDQNPolicy


@dataclass
class MeDQNParams(DQNParams):
    """Tianshou's parameters of DQN, and those that :class:`MeDQNPolicy` adds."""

    target_update_freq: int = 100
    """gradient steps between copies of the network to its target network; at least 1"""
    sampling: Sampling = "real"
    """where consolidation states come from: "real", as in MeDQN(R), "uniform", as in MeDQN(U), or
    "mixed", half of each"""
    consolidation_coef: float | Schedule = 1.0
    """the paper's lambda, a number or a schedule by environment step"""
    consolidation_epochs: int = 1
    """the paper's E: gradient steps per mini-batch"""
    consolidation_batch_size: int | None = None
    """number of consolidation states; None is the batch size"""
    consolidation_loss: ConsolidationKind = "mse"
    """the distance between the networks: "mse", "huber" or "kl" """
    consolidation_reduction: Reduction = "mean"
    """over actions: "mean" or "sum" """
    max_grad_norm: float | None = None
    """clip the gradient to this norm; None does not clip"""

    def create_kwargs(self, data: ParamTransformerData) -> dict[str, Any]:
        """Return the arguments of the policy."""
        options = super().create_kwargs(data)
        del options["sampling"]
        options["consolidation_coef"] = self.consolidation_coef  # of which asdict makes a dict
        options["state_sampler"] = make_state_sampler(
            self.sampling,
            observation_space=data.envs.get_observation_space(),
            seed=torch.initial_seed(),  # the experiment's
        )
        return options


class MeDQNAgentFactory(DiscreteCriticOnlyAgentFactory[MeDQNParams, FastMeDQNPolicy]):
    """Builds the policy, passes every state to its sampler, and updates its schedule."""

    def _get_policy_class(self) -> type[FastMeDQNPolicy]:
        return FastMeDQNPolicy

    def create_train_test_collector(
        self, policy: BasePolicy[Any], envs: Environments, reset_collectors: bool = True
    ) -> tuple[Any, Any]:
        """Create Tianshou's collectors, with the policy's hook in that for training."""
        collectors: Any = super().create_train_test_collector(policy, envs, reset_collectors)
        train, test = collectors
        train.set_on_step_hook(_medqn(policy).observe_step)
        return train, test

    def create_trainer(
        self, world: World, policy_persistence: PolicyPersistence
    ) -> OffpolicyTrainer:
        """Create Tianshou's trainer; before each collect, it sets the policy's environment step."""
        trainer = super().create_trainer(world, policy_persistence)
        policy, callback = _medqn(world.policy), trainer.train_fn

        def before_collect(epoch: int, env_step: int) -> None:
            policy.set_env_step(env_step)
            if callback is not None:
                callback(epoch, env_step)

        trainer.train_fn = before_collect
        return trainer


class MeDQNExperimentBuilder(DQNExperimentBuilder):
    """Builds experiments as Tianshou's ``DQNExperimentBuilder`` does, with MeDQN.

    A policy is saved as its state dict, whatever the ``policy_persistence_mode``: torch no longer
    loads the pickled policies of the other mode. An experiment with ``policy_restore_directory``
    restores the networks, the gradient steps and the sampler's bounds. As with all of Tianshou's
    policies, optimizer, replay buffer, environment steps and schedules start from scratch.
    """

    _params: MeDQNParams

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._params = MeDQNParams()

    def with_medqn_params(self, params: MeDQNParams) -> Self:
        """Set the parameters of the policy."""
        return self.with_dqn_params(params)

    def with_dqn_params(self, params: DQNParams) -> Self:
        """Set the parameters of the policy, which must be :class:`MeDQNParams`."""
        if not isinstance(params, MeDQNParams):
            raise TypeError(f"params={params} must be MeDQNParams, which have all of DQNParams")
        self._params = params
        return self

    def build(self) -> Experiment:
        """Create the experiment."""
        experiment = super().build()
        mode = PolicyPersistence.Mode.POLICY_STATE_DICT
        experiment.config = replace(experiment.config, policy_persistence_mode=mode)
        return experiment

    def _create_agent_factory(self) -> MeDQNAgentFactory:
        return MeDQNAgentFactory(
            self._params, self._sampling_config, self._model_factory, self._get_optim_factory()
        )


def _medqn(policy: Any) -> MeDQNPolicy:
    """Return the policy itself, where a wrapper such as that for intrinsic curiosity has it."""
    while not isinstance(policy, MeDQNPolicy):
        policy = policy.policy
    return policy
