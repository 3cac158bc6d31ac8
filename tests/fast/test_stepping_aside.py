"""The fast paths step aside for networks that they do not know exactly."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import ACTIONS, ENVS, OBS_SIZE, assert_same_parameters, build, filled, update
from tianshou.data import Batch, VectorReplayBuffer
from torch import nn

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    FastMeDQNPolicy,
    MeDQNPolicy,
    MLPQNetwork,
    RealStateSampler,
    UniformStateSampler,
    seed_replay_buffer,
)
from medqn_tianshou.fast import kernels, updates

OBS = np.random.default_rng(0).normal(size=(100, OBS_SIZE)).astype(np.float32)


class Contrary(MLPQNetwork):
    """Prefers what its parent class likes least."""

    def forward(self, obs, state=None, info=None):
        return -super().forward(obs)[0], state


class Batchwise(MLPQNetwork):
    """Its values depend on the batch they are computed in."""

    def forward(self, obs, state=None, info=None):
        q_BA = super().forward(obs)[0]
        return q_BA - q_BA.mean(dim=0), state


def fresh_layer():
    torch.manual_seed(5)
    return nn.Linear(16, ACTIONS)


def replace_layer(model):
    model.advantage[2] = fresh_layer()


def replace_bias(model):
    model.advantage[2].bias = nn.Parameter(torch.tensor([3.0, 2.0, 1.0]))


def replace_activation(model):
    model.advantage[1] = nn.Tanh()


def replace_features(model):
    model.features = nn.Sequential(nn.Flatten(), nn.Tanh())


def replace_forward(model):
    forward = model.forward
    model.forward = lambda obs, **kwargs: (forward(obs)[0].flip(1), None)


def replace_embed(model):
    embed = model.embed
    model.embed = lambda obs: embed(obs) * 3


def hook_values(model):
    model.register_forward_hook(lambda _, inputs, result: (result[0].flip(1), result[1]))


def hook_layer(model):
    model.advantage[0].register_forward_hook(lambda _, inputs, result: result * 2)


def freeze_layer(model):
    model.advantage[0].requires_grad_(False)


def hook_parameter(model):
    model.advantage[0].weight.register_hook(lambda gradient: gradient * 3)


def normalize(model):
    model.features = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(OBS_SIZE))


CHANGES = [
    replace_layer, replace_bias, replace_activation, replace_features, replace_forward,
    replace_embed, hook_values, hook_layer, freeze_layer, hook_parameter, normalize,
]  # fmt: skip


def make_pair(change, *, used, compiled=True, **options):
    """Return a plain and a fast policy whose networks were changed, maybe after some use."""
    pair = []
    for policy_class, more in ((MeDQNPolicy, {}), (FastMeDQNPolicy, {"compiled": compiled})):
        policy = build(
            policy_class, state_sampler=RealStateSampler(seed=1), is_double=True, **options, **more
        )
        policy.optim = torch.optim.SGD(policy.model.parameters(), lr=0.05)
        buffer = filled(VectorReplayBuffer(90, ENVS))
        if used:
            update(policy, buffer, count=2)
        for model in (policy.model, policy.model_old):
            change(model)
        policy.optim = torch.optim.SGD(policy.model.parameters(), lr=0.05)
        pair.append((policy, buffer))
    return pair


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_changed_network_learns_and_acts_as_with_the_plain_policy(change, used, compiled):
    (plain, plain_buffer), (fast, fast_buffer) = make_pair(change, used=used, compiled=compiled)
    for _ in range(3):
        update(plain, plain_buffer, count=5)
        update(fast, fast_buffer, count=5)
        assert_same_parameters(fast, plain, tolerance=1e-5)
        plain.eval()
        fast.eval()
        expected = plain(Batch(obs=OBS, info=Batch())).act
        np.testing.assert_array_equal(fast.actor(explore=False)(OBS), expected)


@pytest.mark.parametrize("network_class", [Contrary, Batchwise])
def test_a_subclass_with_its_own_forward_is_used(network_class):
    policies = []
    for policy_class in (MeDQNPolicy, FastMeDQNPolicy):
        torch.manual_seed(0)
        model = network_class(observation_shape=(OBS_SIZE,), action_count=ACTIONS)
        policy = build(policy_class, state_sampler=RealStateSampler(seed=1))
        policy.model, policy.model_old = (
            model,
            network_class(observation_shape=(OBS_SIZE,), action_count=ACTIONS),
        )
        policy.sync_weight()
        policy.optim = torch.optim.SGD(model.parameters(), lr=0.05)
        update(policy, filled(VectorReplayBuffer(90, ENVS)), count=10)
        policies.append(policy)
    plain, fast = policies
    assert_same_parameters(fast, plain)
    with torch.no_grad():
        expected = fast.model(OBS)[0].argmax(dim=1).numpy()
    np.testing.assert_array_equal(fast.actor(explore=False)(OBS), expected)


@pytest.mark.parametrize("with_optimizer", [False, True])
def test_a_replaced_model_is_trained_and_its_gradients_do_not_add_up(with_optimizer):
    policies = []
    for policy_class in (MeDQNPolicy, FastMeDQNPolicy):
        policy = build(policy_class, state_sampler=RealStateSampler(seed=1), lr=0.01)
        buffer = filled(VectorReplayBuffer(90, ENVS))
        update(policy, buffer, count=2)
        torch.manual_seed(9)
        policy.model = MLPQNetwork(
            observation_shape=(OBS_SIZE,), action_count=ACTIONS, hidden_sizes=(16,)
        )
        if with_optimizer:
            policy.optim = torch.optim.SGD(policy.model.parameters(), lr=0.05)
        policy.set_gradient_steps(1)
        old = [p for group in policy.optim.param_groups for p in group["params"]]
        update(policy, buffer, count=3)
        policies.append((policy, [p.detach().clone() for p in old]))
    (plain, plain_old), (fast, fast_old) = policies
    assert_same_parameters(fast, plain, tolerance=1e-5)
    for one, other in zip(fast_old, plain_old, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    if with_optimizer:
        for one, other in zip(fast.model.parameters(), plain.model.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


def test_the_mode_reaches_layers_that_were_added_later():
    policy = build(FastMeDQNPolicy)
    policy.train(False)
    policy.model.features = nn.Sequential(nn.Flatten(), nn.Dropout())
    policy.model.extra = nn.Dropout()
    for mode in (True, False, True):
        policy.train(mode)
        assert {module.training for module in policy.model.modules()} == {mode}
    assert not policy.model_old.training


def test_without_compilation_no_numba_code_of_ours_runs(monkeypatch):
    policy = build(
        FastMeDQNPolicy,
        compiled=False,
        state_sampler=RealStateSampler(seed=1),
        max_grad_norm=0.1,
    )
    for module in (kernels, updates):
        for name in [name for name, value in vars(module).items() if hasattr(value, "py_func")]:
            monkeypatch.setattr(module, name, None)
    update(policy, filled(VectorReplayBuffer(90, ENVS)), count=3)
    policy.actor(explore=False)(OBS)


def replace_sample_of_sampler(policy, buffer):
    sample = policy.state_sampler.sample
    policy.state_sampler.sample = lambda size, buffer: sample(size, buffer) * 0 + 1


def replace_uniform_sample(policy, buffer):
    sampler = UniformStateSampler(observation_space=spaces.Box(-9, 9, (OBS_SIZE,), np.float32))
    sampler.sample = lambda size, buffer: np.full((size, OBS_SIZE), size, np.float32)
    policy.state_sampler = sampler


def replace_sample_of_buffer(policy, buffer):
    sample = buffer.sample

    def other_actions(size):
        batch, indices = sample(size)
        batch.act[:] = 0
        return batch, indices

    buffer.sample = other_actions


def replace_get_of_buffer(policy, buffer):
    get = buffer.get
    buffer.get = lambda index, key, *args, **options: (
        get(index, key, *args, **options) * (2 if key == "obs" else 1)
    )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("buffer_class", [VectorReplayBuffer, CompactVectorReplayBuffer])
@pytest.mark.parametrize(
    "change",
    [
        replace_sample_of_sampler, replace_uniform_sample, replace_sample_of_buffer,
        replace_get_of_buffer,
    ],
)  # fmt: skip
def test_a_replaced_method_of_a_sampler_or_buffer_is_used(change, buffer_class, compiled):
    policies = []
    for policy_class, more in (
        (MeDQNPolicy, {}),
        (FastMeDQNPolicy, {"compiled": compiled}),
        (MeDQNPolicy, {}),  # without the change, which matters
    ):
        policy = build(
            policy_class, state_sampler=RealStateSampler(seed=1), consolidation_epochs=2, **more
        )
        # Not an optimizer that divides by small numbers: it would amplify rounding.
        policy.optim = torch.optim.Adam(policy.model.parameters(), lr=0.05, eps=0.1)
        buffer = filled(buffer_class(90, ENVS))
        seed_replay_buffer(buffer, 0)
        update(policy, buffer)
        if len(policies) < 2:
            change(policy, buffer)
        update(policy, buffer, count=5)
        policies.append(policy)
    plain, fast, unchanged = policies
    assert_same_parameters(fast, plain, tolerance=1e-5)
    with pytest.raises(AssertionError):
        assert_same_parameters(unchanged, plain, tolerance=1e-3)
