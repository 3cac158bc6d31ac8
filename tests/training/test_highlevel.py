"""MeDQNExperimentBuilder: Tianshou's high-level API from end to end, on CartPole."""

import re

import numpy as np
import pytest
import torch
from learners import assert_same_parameters
from scripts import ROOT
from tianshou.highlevel.config import SamplingConfig
from tianshou.highlevel.env import DiscreteEnvironments, EnvFactoryRegistered, VectorEnvType
from tianshou.highlevel.experiment import DQNExperimentBuilder, Experiment, ExperimentConfig
from tianshou.highlevel.module.intermediate import IntermediateModule, IntermediateModuleFactory
from tianshou.highlevel.params.policy_params import DQNParams
from tianshou.highlevel.params.policy_wrapper import PolicyWrapperFactoryIntrinsicCuriosity
from tianshou.highlevel.trainer import EpochTestCallbackDQNSetEps, EpochTrainCallbackDQNSetEps

from medqn_tianshou import LinearSchedule, MeDQNExperimentBuilder, MeDQNParams

SCHEDULE = LinearSchedule(start=0.01, end=4.0, duration_env_steps=1000)


def make_builder(builder_class, folder=None, seed=0):
    return (
        builder_class(
            EnvFactoryRegistered(task="CartPole-v1", venv_type=VectorEnvType.DUMMY),
            ExperimentConfig(
                seed=seed,
                device="cpu",
                watch=False,
                persistence_enabled=folder is not None,
                persistence_base_dir=str(folder),
            ),
            SamplingConfig(
                num_epochs=2,
                step_per_epoch=40,
                step_per_collect=10,
                update_per_step=0.5,
                batch_size=16,
                buffer_size=64,
                num_train_envs=2,
                start_timesteps=20,
                start_timesteps_random=True,
            ),
        )
        .with_model_factory_default((16,))
        .with_epoch_train_callback(EpochTrainCallbackDQNSetEps(0.3))
        .with_epoch_test_callback(EpochTestCallbackDQNSetEps(0.0))
        .with_name("run")
    )


def bounds(policy):
    return policy.state_sampler.bounds.state_dict()


def test_an_experiment_trains_and_a_second_one_goes_on_from_its_policy(tmp_path):
    params = MeDQNParams(sampling="uniform", consolidation_coef=SCHEDULE, target_update_freq=7)
    builder = make_builder(MeDQNExperimentBuilder, tmp_path).with_medqn_params(params)
    world = builder.build().run().world
    policy = world.policy
    assert policy.gradient_steps == 40
    assert policy.consolidation_coef == SCHEDULE(70)  # before the last collect
    assert policy.eps == 0.0
    assert np.isfinite(bounds(policy)["low"]).all()
    world.trainer.save_best_fn(policy)

    experiment = Experiment.from_directory(str(tmp_path / "run"))
    restored = experiment.create_experiment_world("again").policy
    assert_same_parameters(restored, policy)
    assert restored.gradient_steps == 40
    for name, value in bounds(policy).items():
        np.testing.assert_array_equal(bounds(restored)[name], value)
    assert experiment.run("once more").world.policy.gradient_steps == 80


def test_without_consolidation_it_is_tianshous_dqn_experiment():
    options = {"target_update_freq": 7, "estimation_step": 2}
    dqn = make_builder(DQNExperimentBuilder).with_dqn_params(DQNParams(**options))
    medqn = make_builder(MeDQNExperimentBuilder).with_medqn_params(
        MeDQNParams(consolidation_coef=0.0, **options)
    )
    expected, found = (builder.build().run().world.policy for builder in (dqn, medqn))
    assert_same_parameters(found, expected)


def test_the_experiments_seed_is_that_of_the_sampler():
    def trained(seed):
        params = MeDQNParams(sampling="mixed", consolidation_epochs=2, max_grad_norm=1.0)
        builder = make_builder(MeDQNExperimentBuilder, seed=seed).with_medqn_params(params)
        return builder.build().run().world.policy

    one, same, other = map(trained, (1, 1, 2))
    assert one.gradient_steps == 80
    assert_same_parameters(one, same)
    state, another = (p.state_sampler.state_dict()["real"]["generator"] for p in (one, other))
    assert state != another


def test_a_policy_in_a_wrapper_sees_every_state_and_the_time(monkeypatch):
    # Tianshou's factory refuses the number of actions that Gymnasium gives: it is numpy's.
    monkeypatch.setattr(DiscreteEnvironments, "get_action_shape", lambda self: 2)

    class Features(IntermediateModuleFactory):
        def create_intermediate_module(self, envs, device):
            return IntermediateModule(torch.nn.Linear(4, 8), 8)

    curiosity = PolicyWrapperFactoryIntrinsicCuriosity(
        feature_net_factory=Features(), hidden_sizes=(8,), lr=1e-3, lr_scale=1.0, reward_scale=0.01,
        forward_loss_weight=0.2,
    )  # fmt: skip
    params = MeDQNParams(sampling="uniform", consolidation_coef=SCHEDULE)
    builder = make_builder(MeDQNExperimentBuilder).with_medqn_params(params)
    wrapper = builder.with_policy_wrapper_factory(curiosity).build().run().world.policy
    assert wrapper.policy.gradient_steps == 40
    assert wrapper.policy.consolidation_coef == SCHEDULE(70)
    assert np.isfinite(bounds(wrapper.policy)["low"]).all()


def test_parameters_of_dqn_are_refused():
    with pytest.raises(TypeError, match="must be MeDQNParams"):
        make_builder(MeDQNExperimentBuilder).with_dqn_params(DQNParams())
    builder = make_builder(MeDQNExperimentBuilder).with_dqn_params(MeDQNParams(lr=0.5))
    assert builder.build().agent_factory.params.lr == 0.5


def test_the_file_of_a_policy_has_nothing_but_tensors(tmp_path):
    builder = make_builder(MeDQNExperimentBuilder, tmp_path)
    world = builder.build().create_experiment_world()
    world.trainer.save_best_fn(world.policy)
    state = torch.load(tmp_path / "run/policy_state_dict.pt", weights_only=True)
    assert state.keys() == world.policy.state_dict().keys()


def test_the_snippet_of_the_docs_runs(tmp_path):
    page = (ROOT / "docs/own_code.md").read_text()
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Builder(" in c]
    for text, other in (
        ('"log', f'"{tmp_path}'),
        ("num_epochs=5, step_per_epoch=2_000", "num_epochs=1, step_per_epoch=20"),
    ):
        assert text in code
        code = code.replace(text, other)
    scope = {}
    exec(code, scope)  # noqa: S102
    assert {path.name for path in tmp_path.iterdir()} == {"cartpole", "cartpole-again"}
    assert scope["again"].config.policy_restore_directory == f"{tmp_path}/cartpole"
