"""Compiled updates change policy and optimizer as torch does."""

import copy
import pickle

import numpy as np
import pytest
import torch
from learners import update
from small_networks import ACTIONS, make_observations, make_policy
from tianshou.data import Batch
from torch import nn

from medqn_tianshou import CompactVectorReplayBuffer
from medqn_tianshou.algorithm.stats import NonFiniteLossError
from medqn_tianshou.fast.learner import SmallLearner
from medqn_tianshou.fast.policy import FastMeDQNPolicy
from medqn_tianshou.host.api import Agent as MeDQNPolicy


def make_buffer(name, size=120):
    generator = np.random.default_rng(5)
    buffer = CompactVectorReplayBuffer(size, 1, random_seed=3)
    obs = make_observations(name, 1, generator)
    for step in range(size):
        obs_next = make_observations(name, 1, generator)
        ends = step % 11 == 10
        buffer.add(
            Batch(
                obs=obs,
                obs_next=obs_next,
                act=generator.integers(ACTIONS, size=1),
                rew=generator.normal(size=1) * 3,
                terminated=np.array([ends]),
                truncated=np.array([step % 17 == 16]),
            )
        )
        obs = make_observations(name, 1, generator) if ends else obs_next
    return buffer


def follow(policy, other):
    """Give a policy the parameters and the optimizer state of another."""
    policy.load_parameters_by_name(other.parameters_by_name())
    policy.torch_optim.load_state_dict(copy.deepcopy(other.torch_optim.state_dict()))


def assert_close(one, other, tolerance):
    for found, expected in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optimizer", "huber", "epochs"),
    [
        ("vector", "adam", True, 1),
        ("vector", "adam", False, 4),
        ("vector", "rmsprop", False, 4),
        ("grid", "adam", False, 4),
        ("grid", "rmsprop, centered", True, 1),
        ("grid", "rmsprop, centered", False, 4),
    ],
)
def test_a_thousand_gradient_steps_are_those_of_the_plain_policy(name, optimizer, huber, epochs):
    options = {
        "clip_loss_grad": huber,
        "consolidation_epochs": epochs,
        "consolidation_coef": 1.0,
        "max_grad_norm": 1.0 if epochs > 1 else None,
    }
    fast = make_policy(FastMeDQNPolicy, name, optimizer, **options)
    plain = make_policy(MeDQNPolicy, name, optimizer, **options)
    ours, theirs = make_buffer(name), make_buffer(name)
    for _ in range(1000 // epochs):
        follow(plain, fast)  # otherwise rounding would grow from step to step, as in any two runs
        found, expected = update(fast, ours)[0], update(plain, theirs)[0]
        assert_close(fast, plain, 3e-6 if epochs == 1 else 1e-4)
        for key in ("loss", "td_loss", "consolidation_loss"):
            assert getattr(found, key) == pytest.approx(getattr(expected, key), rel=1e-4, abs=1e-7)
    assert fast._learner._work is not None  # compiled code it was
    assert fast.gradient_steps == 1000


@pytest.mark.parametrize("name", ["vector", "grid"])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("adam, fused", {"consolidation_coef": 0.0}),
        ("adam", {"consolidation_coef": 0.0, "consolidation_epochs": 3}),
        ("rmsprop", {"consolidation_coef": 0.5, "is_double": True, "estimation_step": 3}),
        ("adam", {"consolidation_coef": 0.5, "consolidation_reduction": "sum", "schedule": True}),
        ("adam", {"consolidation_coef": 0.5, "consolidation_batch_size": 5}),
    ],
    ids=["dqn", "dqn, epochs", "double, n-step", "sum, schedule", "few states"],
)
def test_updates_are_those_of_the_plain_policy(name, optimizer, options):
    fast = make_policy(FastMeDQNPolicy, name, optimizer, **options)
    plain = make_policy(MeDQNPolicy, name, optimizer, **options)
    ours, theirs = make_buffer(name), make_buffer(name)
    for _ in range(20):
        found, expected = update(fast, ours)[0], update(plain, theirs)[0]
        assert vars(found).keys() == vars(expected).keys()
        assert (found.consolidation_loss is None) == (options["consolidation_coef"] == 0)
        assert found.loss == pytest.approx(expected.loss, rel=1e-3)
    assert_close(fast, plain, 1e-4)
    assert fast._learner._work is not None
    assert fast.torch_optim.param_groups[0]["lr"] == plain.torch_optim.param_groups[0]["lr"]
    for one, other in zip(fast.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-2, atol=1e-4)
    states = [policy.torch_optim.state_dict()["state"] for policy in (fast, plain)]
    assert [list(entry) for entry in states[0].values()] == [
        list(entry) for entry in states[1].values()
    ]
    for one, other in zip(states[0].values(), states[1].values(), strict=True):
        assert one["step"] == other["step"]


@pytest.mark.parametrize(
    ("optimizer", "change"),
    [
        ("amsgrad", lambda policy: None),
        ("decay", lambda policy: None),
        ("adam", lambda policy: policy.torch_optim.register_step_pre_hook(lambda *_: None)),
        (
            "adam",
            lambda policy: policy.torch_optim.add_param_group({"params": [nn.Parameter(_one())]}),
        ),
        ("adam", lambda policy: policy.model.advantage[0].weight.requires_grad_(False)),
        ("adam", lambda policy: policy.model.advantage[0].weight.register_hook(lambda g: 2 * g)),
    ],
    ids=["amsgrad", "weight decay", "step hook", "another group", "frozen", "gradient hook"],
)
def test_what_compiled_steps_do_not_know_is_left_to_torch(optimizer, change):
    policies = [make_policy(cls, "vector", optimizer) for cls in (FastMeDQNPolicy, MeDQNPolicy)]
    for policy in policies:
        update(policy, make_buffer("vector"))
        change(policy)
        policy._learner = learner = SmallLearner()
        update(policy, make_buffer("vector"), count=3)
        assert learner._work is None
    assert_close(*policies, 1e-5)


def _one():
    return torch.ones(1)


def test_updates_are_the_same_in_every_run():
    def trained():
        policy = make_policy(FastMeDQNPolicy, "grid", consolidation_epochs=2)
        update(policy, make_buffer("grid"), count=20)
        return policy

    one, other = trained(), trained()
    for found, expected in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])  # noqa: S301
def test_a_copy_learns_on_its_own(duplicate):
    policy = make_policy(FastMeDQNPolicy, "vector")
    buffer = make_buffer("vector")
    update(policy, buffer, count=3)
    other = duplicate(policy)
    before = copy.deepcopy(policy.parameters_by_name())
    update(other, copy.deepcopy(buffer), count=3)
    for name, value in policy.parameters_by_name().items():
        assert torch.equal(value, before[name])
    update(policy, buffer, count=3)
    assert_close(other, policy, 0.0)


def test_an_optimizer_state_that_is_loaded_or_changed_counts():
    policies = [make_policy(cls, "vector") for cls in (FastMeDQNPolicy, MeDQNPolicy)]
    for policy in policies:
        buffer = make_buffer("vector")
        update(policy, buffer, count=3)
        saved = copy.deepcopy(policy.torch_optim.state_dict())
        update(policy, buffer, count=3)
        policy.torch_optim.load_state_dict(saved)
        update(policy, buffer, count=3)
        for state in policy.torch_optim.state.values():
            state["exp_avg"] = torch.zeros_like(state["exp_avg"])
        policy.torch_optim.param_groups[0]["lr"] = 1e-2
        policy.torch_optim.zero_grad()
        update(policy, buffer, count=3)
    assert_close(*policies, 1e-5)


def test_an_action_that_the_network_does_not_have_is_an_error_before_anything_changes():
    policy = make_policy(FastMeDQNPolicy, "vector")
    buffer = make_buffer("vector")
    update(policy, buffer)
    before = copy.deepcopy(policy)
    for action in (ACTIONS, -1, 1000):
        buffer.buffers[0].columns["act"].values = np.full(120, action)
        with pytest.raises(IndexError, match=f"actions from {action} to {action} do not fit"):
            update(policy, buffer)
    assert_close(policy, before, 0.0)
    assert policy.gradient_steps == before.gradient_steps


def test_a_loss_that_is_not_a_number_stops_compiled_updates():
    policy = make_policy(FastMeDQNPolicy, "vector")
    buffer = make_buffer("vector")
    buffer.buffers[0].columns["rew"].values = np.full(120, np.nan)
    with pytest.raises(NonFiniteLossError, match="loss is nan"):
        update(policy, buffer)
    assert policy._learner._work is not None
