"""MeDQN as an algorithm of Tianshou 2, with its own trainer, collectors and buffers."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from learners import ENVS, OBS_SIZE, assert_same_parameters, build, filled, update
from tianshou.data import (
    Batch,
    Collector,
    CollectStats,
    PrioritizedVectorReplayBuffer,
    VectorReplayBuffer,
)
from tianshou.env import DummyVectorEnv
from tianshou.utils.torch_utils import policy_within_training_step

import medqn_tianshou as medqn
from medqn_tianshou.host import TIANSHOU

if TIANSHOU == 1:
    pytest.skip("of Tianshou 2", allow_module_level=True)

from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data.buffer.buffer_base import MalformedBufferError
from tianshou.trainer import OffPolicyTrainer, OffPolicyTrainerParams

from medqn_tianshou import FastMeDQN, LinearSchedule, MeDQN, RealStateSampler, UniformStateSampler

COUNTS = {
    "consolidation_epochs": 0, "target_update_freq": 0, "consolidation_batch_size": 0,
    "max_grad_norm": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("buffer_class", [VectorReplayBuffer, PrioritizedVectorReplayBuffer])
@pytest.mark.parametrize("algorithm_class", [MeDQN, FastMeDQN])
@pytest.mark.parametrize("options", [{}, {"is_double": False, "n_step": 3}, {"lr_decay": True}])
def test_without_consolidation_it_is_tianshous_dqn(buffer_class, algorithm_class, options):
    def trained(cls, **more):
        weights = {"alpha": 0.6, "beta": 0.4} if "Prioritized" in buffer_class.__name__ else {}
        np.random.seed(4)
        algorithm = build(cls, **options, **more)
        stats = update(algorithm, filled(buffer_class(90, ENVS, **weights)), count=25)
        return algorithm, [one.loss for one in stats]

    plain, expected = trained(DQN)
    exact = {"compiled": False} if algorithm_class is FastMeDQN else {}
    ours, losses = trained(algorithm_class, consolidation_coef=0.0, **exact)
    assert_same_parameters(ours.model, plain.policy.model)
    assert_same_parameters(ours.target_model, plain.model_old.module)
    assert losses == expected


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("buffer_class", [VectorReplayBuffer, medqn.CompactVectorReplayBuffer])
def test_the_fast_algorithm_gives_the_results_of_the_plain_one(compiled, buffer_class):
    def trained(cls, **more):
        options = {"random_seed": 0} if buffer_class is not VectorReplayBuffer else {}
        algorithm = build(
            cls, state_sampler=RealStateSampler(seed=1), consolidation_epochs=2, huber=True, **more
        )
        stats = update(algorithm, filled(buffer_class(90, ENVS, **options)), count=40)
        return algorithm, [one.loss for one in stats]

    plain, expected = trained(MeDQN)
    fast, losses = trained(FastMeDQN, compiled=compiled)
    assert_same_parameters(fast, plain, tolerance=1e-5)
    assert losses == pytest.approx(expected, rel=1e-4)
    assert fast.gradient_steps == plain.gradient_steps == 80


def test_a_huber_loss_of_another_width_is_left_to_torch():
    def trained(cls):
        algorithm = build(cls, state_sampler=RealStateSampler(seed=1))
        algorithm.huber_loss_delta = 0.1
        update(algorithm, filled(VectorReplayBuffer(90, ENVS)), count=20)
        return algorithm

    assert_same_parameters(trained(FastMeDQN), trained(MeDQN), tolerance=1e-6)


@pytest.mark.parametrize("name", COUNTS)
def test_wrong_arguments_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name}={COUNTS[name]} must be"):
        build(MeDQN, **{name: COUNTS[name]})


def test_a_policy_that_acts_differently_is_asked():
    class Contrary(DiscreteQLearningPolicy):
        def add_exploration_noise(self, act, batch):
            return np.full_like(act, 2)

    algorithm = build(FastMeDQN)
    assert algorithm.actor(explore=True) is not None
    algorithm.policy.__class__ = Contrary
    assert algorithm.actor(explore=True) is None
    collector = medqn.LeanCollector(
        algorithm, DummyVectorEnv([_cart_pole]), VectorReplayBuffer(9, 1), exploration_noise=True
    )
    collector.policy.action_space = gym.spaces.Discrete(3)
    collector._pre_collect_obs_RO = np.zeros((1, OBS_SIZE), np.float32)
    assert collector._chooser(random=False)(np.zeros((1, OBS_SIZE), np.float32), None)[0] == [2]


def test_exploration_has_a_rate_of_its_own_within_a_training_step():
    algorithm = build(FastMeDQN)
    algorithm.policy.set_eps_training(0.5)
    algorithm.policy.set_eps_inference(0.1)
    assert algorithm.eps == 0.1
    with policy_within_training_step(algorithm.policy):
        assert algorithm.eps == 0.5
    algorithm.set_eps(0.2)
    assert (algorithm.policy.eps_training, algorithm.policy.eps_inference) == (0.2, 0.2)


@pytest.mark.parametrize("collector_class", [Collector, medqn.LeanCollector])
@pytest.mark.parametrize("algorithm_class", [MeDQN, FastMeDQN])
def test_tianshous_trainer_trains_it(collector_class, algorithm_class):
    env = _cart_pole()
    torch.manual_seed(0)
    model = medqn.MLPQNetwork(observation_shape=(4,), action_count=2)
    start = copy.deepcopy(model)
    algorithm = algorithm_class(
        policy=DiscreteQLearningPolicy(
            model=model, action_space=env.action_space, eps_training=0.5
        ),
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.9,
        n_step_return_horizon=2,
        target_update_freq=20,
        state_sampler=UniformStateSampler(observation_space=env.observation_space, seed=0),
        consolidation_coef=LinearSchedule(0.5, 1.0, 100),
    )
    collector = collector_class(
        algorithm,
        DummyVectorEnv([_cart_pole, _cart_pole]),
        medqn.CompactVectorReplayBuffer(200, 2, random_seed=0),
        exploration_noise=True,
        on_step_hook=algorithm.observe_step,
    )
    collector.reset()
    collector.collect(n_step=40, random=True)
    params = OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=100,
        collection_step_num_env_steps=10,
        update_step_num_gradient_steps_per_sample=0.2,
        batch_size=16,
        training_fn=lambda _, env_step: algorithm.set_env_step(env_step),
        verbose=False,
        show_progress=False,
    )
    assert isinstance(algorithm.create_trainer(params), OffPolicyTrainer)
    algorithm.run_training(params)
    assert algorithm.gradient_steps == 20
    assert algorithm.consolidation_coef == pytest.approx(0.95)
    with pytest.raises(AssertionError):
        assert_same_parameters(model, start)


def test_the_trainer_finds_what_is_missing():
    buffer = medqn.CompactVectorReplayBuffer(50, ENVS, random_seed=0)
    algorithm = build(MeDQN)

    class Broken:
        policy, collect_step, collect_time = algorithm.policy, 0, 0.0

        def __init__(self):
            self.buffer = filled(buffer, steps=30)

        def collect(self, **_):
            batch = buffer[[0, 0, 0]]
            buffer.add(Batch({**dict(batch.items()), "rew": np.array([0.0, np.nan, 0.0])}))
            return CollectStats(n_collected_steps=3)

        def reset(self, **_):
            pass

    trainer = algorithm.create_trainer(
        OffPolicyTrainerParams(
            training_collector=Broken(), show_progress=False, collection_step_num_env_steps=3
        )
    )
    with pytest.raises(MalformedBufferError, match="NaN"):
        trainer.run()


def test_a_state_dict_has_gradient_steps_sampler_and_optimizer():
    sampler = UniformStateSampler(observation_space=gym.spaces.Box(-9, 9, (OBS_SIZE,)), seed=1)
    one = build(MeDQN, state_sampler=sampler)
    sampler.observe(np.ones((2, OBS_SIZE), np.float32))
    sampler.observe(-np.ones((2, OBS_SIZE), np.float32))
    buffer = filled(VectorReplayBuffer(90, ENVS))
    update(one, buffer, count=9)
    fresh = UniformStateSampler(observation_space=gym.spaces.Box(-9, 9, (OBS_SIZE,)), seed=2)
    other = build(MeDQN, state_sampler=fresh)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert other.gradient_steps == 9
    for algorithm in (one, other):
        np.random.seed(0)
        update(algorithm, filled(VectorReplayBuffer(90, ENVS)), count=5)
    assert_same_parameters(one, other)


def test_a_state_dict_of_tianshous_dqn_is_loaded():
    stock, ours = build(DQN), build(MeDQN)
    update(stock, filled(VectorReplayBuffer(90, ENVS)), count=9)
    ours.load_state_dict(copy.deepcopy(stock.state_dict()))
    assert_same_parameters(ours.model, stock.policy.model)
    assert ours.gradient_steps == 0


def test_a_schedule_that_nobody_tells_the_time_warns():
    algorithm = build(MeDQN, consolidation_coef=LinearSchedule(0.1, 1.0, 100))
    with pytest.warns(UserWarning, match=r"stays at 0.1: call its set_env_step"):
        update(algorithm, filled(VectorReplayBuffer(90, ENVS)))


def _cart_pole():
    return gym.make("CartPole-v1")
