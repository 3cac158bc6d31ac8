"""FastMeDQNPolicy gives the parameters, losses and actions of the plain MeDQNPolicy."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import ACTIONS, ENVS, OBS_SIZE, assert_same_parameters, build, filled, update
from tianshou.data import PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.policy import DQNPolicy

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    FastMeDQNPolicy,
    MeDQNPolicy,
    RealStateSampler,
    UniformStateSampler,
)
from medqn_tianshou.algorithm.samplers import MixedStateSampler
from medqn_tianshou.replay.tianshou_buffers import seed_replay_buffer

UPDATES = 25


def make_sampler(name):
    real, uniform = (
        RealStateSampler(seed=1),
        UniformStateSampler(
            observation_space=spaces.Box(-np.inf, np.inf, (OBS_SIZE,), np.float32), seed=2
        ),
    )
    uniform.observe(np.array([[-1, -2, 0, 1], [1, 0, 2, 1]], np.float32))
    mixed = MixedStateSampler(real=real, uniform=uniform, seed=3)
    return {"real": real, "uniform": uniform, "mixed": mixed}[name]


def make_buffer(name):
    np.random.seed(0)  # what prioritized buffers sample from
    if name == "prioritized":
        return filled(PrioritizedVectorReplayBuffer(90, ENVS, alpha=0.6, beta=0.4))
    if name == "compact":
        buffer = CompactVectorReplayBuffer(90, ENVS, random_seed=0)
        seed_replay_buffer(buffer, 0)
        return filled(buffer)
    return filled(VectorReplayBuffer(90, ENVS))


def trained(policy_class, buffer, sampler="real", **options):
    policy = build(policy_class, state_sampler=make_sampler(sampler), **options)
    # Not an optimizer that divides by the size of the gradient: it would amplify rounding.
    policy.optim = torch.optim.SGD(policy.model.parameters(), lr=0.02)
    return policy, update(policy, make_buffer(buffer), count=UPDATES)


@pytest.mark.parametrize("buffer", ["raw", "compact", "prioritized"])
@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        ("real", {"is_double": False}),
        ("real", {"is_double": True, "estimation_step": 3, "consolidation_epochs": 4}),
        ("uniform", {"is_double": False, "estimation_step": 3, "max_grad_norm": 0.5}),
        ("uniform", {"is_double": True, "consolidation_epochs": 4, "clip_loss_grad": True}),
        ("mixed", {"is_double": False, "consolidation_epochs": 4, "dueling": True}),
        ("real", {"is_double": False, "consolidation_batch_size": 5, "consolidation_loss": "kl"}),
        ("real", {"consolidation_coef": 0.0, "is_double": True, "estimation_step": 3}),
    ],
    ids=str,
)
def test_many_updates_give_the_parameters_and_losses_of_the_plain_policy(sampler, options, buffer):
    plain, expected = trained(MeDQNPolicy, buffer, sampler, **options)
    start = build(MeDQNPolicy, dueling=options.get("dueling", False)).model.advantage[0].weight
    for compiled in (False, True):
        fast, stats = trained(FastMeDQNPolicy, buffer, sampler, compiled=compiled, **options)
        assert_same_parameters(fast, plain, tolerance=1e-5)
        assert (fast.model.advantage[0].weight - start).abs().max() > 1e-2
        assert fast.gradient_steps == plain.gradient_steps
        for one, other in zip(stats, expected, strict=True):
            names = ["loss", "td_loss", "consolidation_coef"]
            if other.consolidation_loss is None:
                assert one.consolidation_loss is None
            else:
                names.append("consolidation_loss")
            for name in names:
                wanted = pytest.approx(getattr(other, name), rel=1e-3, abs=1e-6)
                assert getattr(one, name) == wanted, compiled


@pytest.mark.parametrize("is_double", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("buffer", ["raw", "prioritized"])
@pytest.mark.parametrize("options", [{}, {"dueling": True, "lr_decay": True}], ids=str)
def test_without_consolidation_and_numba_it_is_dqn_bit_for_bit(is_double, n_step, buffer, options):
    options = {**options, "is_double": is_double, "estimation_step": n_step}
    dqn = build(DQNPolicy, **options)
    expected = update(dqn, make_buffer(buffer), count=UPDATES)
    fast = build(FastMeDQNPolicy, consolidation_coef=0.0, compiled=False, **options)
    stats = update(fast, make_buffer(buffer), count=UPDATES)
    assert_same_parameters(fast, dqn)
    assert [one.loss for one in stats] == [one.loss for one in expected]


def test_sampled_indices_and_the_samplers_generator_are_those_of_the_plain_policy():
    states = []
    for policy_class in (MeDQNPolicy, FastMeDQNPolicy):
        policy = build(policy_class, state_sampler=make_sampler("real"), consolidation_epochs=3)
        buffer = make_buffer("raw")
        update(policy, buffer, count=5)
        after = buffer._random_state.get_state() if hasattr(buffer, "_random_state") else None
        states.append((policy.state_sampler.state_dict(), after))
    np.testing.assert_equal(states[0], states[1])


def test_copies_and_pickles_learn_on_by_themselves():
    policy, _ = trained(FastMeDQNPolicy, "raw")
    assert b"ReplayBuffer" not in pickle.dumps(policy)
    for other in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):  # noqa: S301 (our own bytes)
        assert_same_parameters(other, policy)
        before = copy.deepcopy(policy.state_dict())
        update(other, make_buffer("raw"))
        for name, value in policy.state_dict().items():
            assert torch.equal(value, before[name])
        assert not torch.equal(other.model.advantage[0].weight, policy.model.advantage[0].weight)
        obs = np.random.default_rng(0).normal(size=(50, OBS_SIZE)).astype(np.float32)
        expected = other.model(obs)[0].argmax(dim=1).tolist()
        assert other.actor(explore=False)(obs).tolist() == expected
    assert other.max_action_num == ACTIONS
