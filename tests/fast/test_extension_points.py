"""What a subclass overrides of Tianshou's DQNPolicy counts, in the plain and the fast policy."""

from functools import cache

import pytest
import torch
from learners import ENVS, assert_same_parameters, build, filled, update
from tianshou.data import VectorReplayBuffer
from tianshou.policy import DQNPolicy

from medqn_tianshou import FastMeDQNPolicy, MeDQNPolicy, RealStateSampler


class OwnTargets:
    """Targets from another value of the successors: the mean over actions."""

    def _target_q(self, buffer, indices):
        batch = buffer[indices]
        batch.obs = batch.obs_next
        return self(batch, model="model_old").logits.mean(dim=1)


class OwnForward:
    """Action values on another scale."""

    def forward(self, batch, state=None, model="model", **kwargs):
        result = super().forward(batch, state, model, **kwargs)
        result.logits = result.logits * 0.5
        return result


class OwnReturns:
    """Returns without bootstrapping."""

    @staticmethod
    def compute_nstep_return(batch, buffer, indices, target_q_fn, gamma, n_step, rew_norm):
        assert len(target_q_fn(buffer, indices)) == len(indices)
        batch.returns = torch.as_tensor(buffer.rew[indices], dtype=torch.float32)[:, None]
        return batch


class OwnValues:
    """Double DQN that never chooses the first action."""

    def compute_q_value(self, logits, mask):
        return logits - 100 * torch.eye(logits.shape[1])[0]


class OwnBatch:
    """Targets changed by something that only the real buffer knows."""

    def process_fn(self, batch, buffer, indices):
        batch = super().process_fn(batch, buffer, indices)
        before = buffer.rew[buffer.prev(indices)]
        batch.returns = batch.returns + torch.as_tensor(before, dtype=torch.float32)[:, None]
        return batch


class OwnLearning:
    """Half of the batch is left out of learning."""

    def learn(self, batch, *args, **kwargs):
        return super().learn(batch[: len(batch) // 2], *args, **kwargs)


EXTENSIONS = [OwnTargets, OwnForward, OwnReturns, OwnValues, OwnBatch, OwnLearning]


@cache
def extended(extension, policy_class):
    return type("Extended", (extension, policy_class), {})


@cache  # several tests compare with the same policy, and none changes it
def trained(policy_class, *, consolidates=False, **options):
    if consolidates:
        options |= {"state_sampler": RealStateSampler(seed=1), "consolidation_epochs": 2}
    policy = build(policy_class, is_double=True, **options)
    # Not an optimizer that divides by the size of the gradient: it would amplify rounding.
    policy.optim = torch.optim.SGD(policy.model.parameters(), lr=0.05)
    update(policy, filled(VectorReplayBuffer(90, ENVS)), count=20)
    return policy


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
def test_a_subclass_learns_as_the_same_subclass_of_dqn(extension, policy_class):
    options = {"consolidation_coef": 0.0}
    if policy_class is FastMeDQNPolicy:
        options["compiled"] = False
    expected = trained(extended(extension, DQNPolicy))
    assert_same_parameters(trained(extended(extension, policy_class), **options), expected)
    with pytest.raises(AssertionError):  # the extension matters
        assert_same_parameters(trained(policy_class, **options), expected)


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_subclass_of_the_fast_policy_learns_as_that_of_the_plain_one(extension, compiled):
    plain = trained(extended(extension, MeDQNPolicy), consolidates=True)
    fast = trained(extended(extension, FastMeDQNPolicy), consolidates=True, compiled=compiled)
    assert_same_parameters(fast, plain, tolerance=1e-5)
    with pytest.raises(AssertionError):  # by far more than the tolerance
        assert_same_parameters(trained(MeDQNPolicy, consolidates=True), plain, tolerance=1e-3)


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
@pytest.mark.parametrize("name", ["_target_q", "forward", "compute_q_value"])
def test_a_method_replaced_on_the_object_is_used(policy_class, name):
    policy = build(policy_class, is_double=True)
    calls = []
    method = getattr(policy, name)
    setattr(policy, name, lambda *args, **kwargs: calls.append(1) or method(*args, **kwargs))
    update(policy, filled(VectorReplayBuffer(90, ENVS)))
    assert calls


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
def test_hooks_of_the_policy_are_called(policy_class):
    policy = build(policy_class)
    calls = []
    policy.register_forward_hook(lambda *_: calls.append(1))
    update(policy, filled(VectorReplayBuffer(90, ENVS)))
    assert len(calls) == 5  # successors by both networks, TD batch, states by both networks
