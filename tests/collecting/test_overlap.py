"""OverlappingCollector plays with weights that are one update old, whatever the timing."""

import copy
import time

import numpy as np
import pytest
import torch
from test_collector import Walk
from tianshou.data import VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.policy import DQNPolicy
from tianshou.utils.torch_utils import policy_within_training_step

from medqn_tianshou import (
    FastMeDQNPolicy,
    LeanCollector,
    MeDQNPolicy,
    MLPQNetwork,
    RealStateSampler,
)
from medqn_tianshou.collecting.overlapping import OverlappingCollector

FIELDS = ("obs", "act", "rew", "terminated", "truncated", "obs_next")


def make(collector_class, env=Walk, **options):
    np.random.seed(3)
    torch.manual_seed(0)
    envs = DummyVectorEnv([env, env])
    envs.seed(5)
    model = MLPQNetwork(observation_shape=(3,), action_count=4)
    policy = FastMeDQNPolicy(
        model=model,
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        action_space=Walk.action_space,
        target_update_freq=5,
        state_sampler=RealStateSampler(seed=0),
    )
    buffer = VectorReplayBuffer(400, 2)
    collector = collector_class(policy, envs, buffer, exploration_noise=True, **options)
    collector.reset()
    policy.set_eps(1.0)
    collector.collect(n_step=20)
    return policy, collector


def train(collector_class, updates=12, pause=lambda: None, **options):
    policy, collector = make(collector_class, **options)
    for number in range(updates):
        with policy_within_training_step(policy):
            policy.set_eps(1 / (number + 2))
            collector.collect(n_step=8)
            pause()
            policy.update(sample_size=8, buffer=collector.buffer)
            pause()
    collector.stop()
    return policy, collector


def contents(collector):
    buffer = collector.buffer
    index = buffer.sample_indices(0)
    return {field: buffer.get(index, field) for field in FIELDS}


def assert_same(one, other):
    for field in FIELDS:
        np.testing.assert_array_equal(one[field], other[field], field)


def test_actions_are_one_update_old():
    """An independent simulation: collect by hand with kept copies of the networks."""
    overlapped, collector = train(OverlappingCollector)

    policy, plain = make(LeanCollector)
    online = policy.model
    old_model = None
    for number in range(12):
        eps_now = 1 / (number + 2)
        policy.set_eps(eps_now if number == 0 else 1 / (number + 1))
        policy.model = online if old_model is None else old_model
        plain.collect(n_step=8)
        policy.model = online
        old_model = copy.deepcopy(online)
        with policy_within_training_step(policy):
            policy.update(sample_size=8, buffer=plain.buffer)
    assert_same(contents(collector), contents(plain))
    for one, other in zip(overlapped.model.parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_it_differs_from_waiting_for_the_update():
    _, overlapped = train(OverlappingCollector)
    _, waiting = train(LeanCollector)
    assert (contents(overlapped)["act"] != contents(waiting)["act"]).any()


def test_timing_changes_nothing():
    _, one = train(OverlappingCollector)
    generator = np.random.default_rng(0)
    _, other = train(OverlappingCollector, pause=lambda: time.sleep(generator.random() / 50))
    assert_same(contents(one), contents(other))


def test_hooks_and_episodes_are_told_in_the_main_order():
    shown, ended = [], []
    _, collector = train(
        OverlappingCollector,
        on_states=lambda obs: shown.extend(obs.copy()),
        on_episode_end=lambda steps, episode_return, length: ended.append((steps, length)),
    )
    stored = contents(collector)["obs"]
    assert {obs.tobytes() for obs in stored} == {obs.tobytes() for obs in shown}
    assert collector.collect_episode == len(ended) > 5
    assert [steps for steps, _ in ended] == sorted(steps for steps, _ in ended)
    assert collector.collect_step == 20 + 12 * 8 == len(stored)


def test_an_error_of_the_environment_is_raised_where_its_steps_are_asked_for():
    class Broken(Walk):
        left = 60

        def step(self, action):
            Broken.left -= 1
            if Broken.left < 0:
                raise RuntimeError("the game crashed")
            return super().step(action)

    with pytest.raises(RuntimeError, match="the game crashed"):
        train(OverlappingCollector, env=Broken)


def test_another_number_of_steps_and_an_evaluation_in_between_are_refused():
    policy, collector = make(OverlappingCollector)
    with policy_within_training_step(policy):
        collector.collect(n_step=8)
        with pytest.raises(ValueError, match="n_step=10 must stay what it was, 8"):
            collector.collect(n_step=10)
    with pytest.raises(ValueError, match="reset the collector"):
        collector.collect(n_episode=2)
    collector.reset()
    assert collector.collect(n_episode=2).n_collected_episodes == 2
    collector.stop()


def test_a_policy_that_chooses_in_its_own_way_is_refused():
    class Contrary(FastMeDQNPolicy):
        def exploration_noise(self, act, batch):
            return act

    policy, _ = make(LeanCollector)
    contrary = Contrary(
        model=policy.model,
        optim=policy.optim,
        action_space=Walk.action_space,
        target_update_freq=5,
    )
    with pytest.raises(ValueError, match="do not overlap"):
        OverlappingCollector(contrary, DummyVectorEnv([Walk]), VectorReplayBuffer(10, 1))


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, DQNPolicy])
def test_a_policy_without_an_actor_is_refused(policy_class):
    model = MLPQNetwork(observation_shape=(3,), action_count=4)
    policy = policy_class(
        model=model,
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        action_space=Walk.action_space,
        target_update_freq=5,
    )
    with pytest.raises(ValueError, match=f"policy={policy_class.__name__} has no actor"):
        OverlappingCollector(policy, DummyVectorEnv([Walk]), VectorReplayBuffer(10, 1))
