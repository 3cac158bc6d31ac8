"""Classes that were changed, networks of another make, and observations that do not fit."""

import numpy as np
import pytest
import torch
from learners import ACTIONS, ENVS, OBS_SIZE, assert_same_parameters, build, filled, update
from small_networks import make_observations, make_policy
from tianshou.data import VectorReplayBuffer
from torch import nn

from medqn_tianshou import FastMeDQNPolicy, MeDQNPolicy, MLPQNetwork, RealStateSampler
from medqn_tianshou.algorithm.networks import QNetwork

OBS = np.random.default_rng(0).normal(size=(100, OBS_SIZE)).astype(np.float32)


@pytest.mark.parametrize(
    ("owner", "name", "change"),
    [
        (MLPQNetwork, "forward", lambda result: (-result[0], result[1])),
        (QNetwork, "forward", lambda result: (-result[0], result[1])),
        (QNetwork, "embed", lambda features_BF: -features_BF),
        (nn.Linear, "forward", lambda values: -values),
        (nn.ReLU, "forward", lambda values: 1 - values),
    ],
)
def test_a_method_replaced_in_a_class_is_used(monkeypatch, owner, name, change):
    policy = build(FastMeDQNPolicy)
    before = policy.actor(explore=False)(OBS)
    method = getattr(owner, name)
    monkeypatch.setattr(
        owner, name, lambda self, *args, **kwargs: change(method(self, *args, **kwargs)),
        raising=False,
    )  # fmt: skip
    with torch.no_grad():
        expected = policy.model(OBS)[0].argmax(dim=1).numpy()
    found = policy.actor(explore=False)(OBS)
    np.testing.assert_array_equal(found, expected)
    assert (found != before).any()


def test_a_network_of_another_make_is_left_to_the_plain_code():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = []
            self.layer = nn.Linear(OBS_SIZE, ACTIONS)

        def forward(self, obs, state=None, info=None):
            self.sizes.append(len(obs))
            return self.layer(torch.as_tensor(obs)), state

    policy = build(FastMeDQNPolicy, state_sampler=RealStateSampler(seed=1))
    policy.model, policy.model_old = Own(), Own()
    policy.sync_weight()
    policy.optim = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    update(policy, filled(VectorReplayBuffer(90, ENVS)))
    assert policy.model.sizes == [16, 16, 16]  # successors, TD batch, states
    policy.set_eps(1.0)
    policy.actor(explore=True)(OBS)
    assert policy.model.sizes[3:] == [len(OBS)]  # it may count, or sample: it is always asked


def test_observations_of_the_wrong_width_are_an_error_as_in_torch():
    policy = build(FastMeDQNPolicy)
    policy.set_eps(1.0)  # all actions are random
    for explore in (False, True):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            policy.actor(explore=explore)(OBS[:, :2])


def test_layers_that_do_not_fit_are_an_error_as_in_torch():
    policy = build(FastMeDQNPolicy)
    policy.actor(explore=False)(OBS)
    policy.model.advantage[2] = nn.Linear(5, ACTIONS)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        policy.actor(explore=False)(OBS)


def test_a_head_of_a_single_layer_is_left_to_torch():
    policy = make_policy(FastMeDQNPolicy, "grid")
    policy.model.advantage = nn.Linear(policy.model.advantage[0].in_features, 3)
    grids = make_observations("grid", 5, np.random.default_rng(0))
    expected = policy.model(grids)[0].argmax(dim=1).numpy()
    np.testing.assert_array_equal(policy.actor(explore=False)(grids), expected)


def test_a_layer_used_twice_gets_the_gradient_of_both_uses():
    def train(policy_class):
        torch.manual_seed(0)
        model = QNetwork(features=nn.Flatten(), hidden=(OBS_SIZE, 8, 8), action_count=ACTIONS)
        model.advantage[2] = nn.Linear(8, 8)
        policy = build(policy_class, state_sampler=RealStateSampler(seed=1))
        policy.model, policy.model_old = (
            model,
            QNetwork(features=nn.Flatten(), hidden=(OBS_SIZE, 8, 8), action_count=ACTIONS),
        )
        for network in (policy.model, policy.model_old):
            network.advantage.insert(3, nn.ReLU())
            network.advantage.insert(4, network.advantage[2])
        policy.sync_weight()
        policy.optim = torch.optim.SGD(model.parameters(), lr=0.05)
        update(policy, filled(VectorReplayBuffer(90, ENVS)), count=5)
        return policy

    assert_same_parameters(train(FastMeDQNPolicy), train(MeDQNPolicy), tolerance=1e-5)
