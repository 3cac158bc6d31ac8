"""What a user sets, shows to and copies of a MeDQNPolicy."""

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import ACTIONS, ENVS, build, filled, update
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv

from medqn_tianshou import (
    LinearSchedule,
    MeDQNPolicy,
    MLPQNetwork,
    RealStateSampler,
    UniformStateSampler,
)


def test_bounds_hold_every_state_acted_from_though_the_buffer_holds_few():
    """Not the last state of an episode, which the agent does not act from."""

    class Ramp(gym.Env):
        observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        action_space = spaces.Discrete(ACTIONS)

        def reset(self, *, seed=None, options=None):
            self.position = 0.0
            return self.observe(), {}

        def step(self, action):
            self.position += 1.0
            return self.observe(), 0.0, self.position == 10, False, {}

        def observe(self):
            return np.array([self.position, -self.position], np.float32)

    sampler = UniformStateSampler(observation_space=Ramp.observation_space, seed=0)
    torch.manual_seed(0)
    model = MLPQNetwork(observation_shape=(2,), action_count=ACTIONS)
    policy = MeDQNPolicy(
        model=model,
        optim=torch.optim.Adam(model.parameters()),
        action_space=Ramp.action_space,
        target_update_freq=10,
        state_sampler=sampler,
    )
    buffer = VectorReplayBuffer(4, 1)
    collector = Collector(policy, DummyVectorEnv([Ramp]), buffer, on_step_hook=policy.observe_step)
    collector.reset()
    collector.collect(n_step=33)  # the buffer ends with the states 0, 1, 2 of the fourth episode
    assert buffer.obs.max() < 10
    np.testing.assert_array_equal(sampler.bounds.low, [0, -9])
    np.testing.assert_array_equal(sampler.bounds.high, [9, 0])
    (stats,) = update(policy, buffer, batch_size=4)
    assert stats.consolidation_loss is not None


def test_schedule_follows_the_env_step_and_a_set_value_ends_it():
    policy = build(
        MeDQNPolicy,
        state_sampler=RealStateSampler(),
        consolidation_coef=LinearSchedule(start=0.01, end=4.0, duration_env_steps=100),
    )
    assert policy.consolidation_coef == 0.01
    policy.set_env_step(50)
    (stats,) = update(policy, filled(VectorReplayBuffer(90, ENVS)))
    assert stats.consolidation_coef == pytest.approx(2.005)
    policy.set_consolidation_coef(1.5)
    policy.set_env_step(100)
    assert policy.consolidation_coef == 1.5


def test_a_schedule_that_is_never_told_the_time_warns():
    schedule = LinearSchedule(start=0.01, end=4.0, duration_env_steps=100)
    policy = build(MeDQNPolicy, state_sampler=RealStateSampler(), consolidation_coef=schedule)
    with pytest.warns(UserWarning, match="set_env_step"):
        update(policy, filled(VectorReplayBuffer(90, ENVS)))
    policy = build(MeDQNPolicy, state_sampler=RealStateSampler(), consolidation_coef=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        update(policy, filled(VectorReplayBuffer(90, ENVS)))


def test_a_copy_of_the_policy_does_not_copy_the_buffer():
    policy = build(MeDQNPolicy, state_sampler=RealStateSampler())
    update(policy, filled(VectorReplayBuffer(90, ENVS)))
    assert not any(isinstance(value, VectorReplayBuffer) for value in vars(policy).values())
    assert b"ReplayBuffer" not in pickle.dumps(policy)
    assert copy.deepcopy(policy).gradient_steps == 1


def test_a_subclass_may_learn_a_batch_in_pieces():
    class Pieces(MeDQNPolicy):
        def learn(self, batch, *args, **kwargs):
            return [super(Pieces, self).learn(piece) for piece in batch.split(8)][-1]

    policy = build(Pieces, state_sampler=RealStateSampler(seed=1))
    update(policy, filled(VectorReplayBuffer(90, ENVS)), count=2)
    assert policy.gradient_steps == 4


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("target_update_freq", 0),
        ("consolidation_epochs", 0),
        ("consolidation_batch_size", 0),
        ("consolidation_coef", -1.0),
        ("consolidation_coef", float("nan")),
        ("consolidation_loss", "l1"),
        ("consolidation_reduction", "max"),
        ("max_grad_norm", 0.0),
    ],
)
def test_bad_options_are_named(option, value):
    name = option.removeprefix("consolidation_")
    with pytest.raises(ValueError, match=f"({option}|kind|{name})='?{value}"):
        build(MeDQNPolicy, **{option: value})
