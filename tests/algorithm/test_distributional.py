"""Consolidation for distributional policies: Tianshou's own without it, the right gradient with."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import ACTIONS, ENVS, OBS_SIZE, assert_same_parameters, filled, update
from tianshou.data import PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.policy import C51Policy, IQNPolicy, QRDQNPolicy, RainbowPolicy
from tianshou.utils.net.discrete import NoisyLinear
from torch import nn

from medqn_tianshou import (
    AdaptiveCoefficient,
    MeC51Policy,
    MeIQNPolicy,
    MeQRDQNPolicy,
    MeRainbowPolicy,
    MLPQNetwork,
    categorical_kl_loss,
    wasserstein_loss,
)
from medqn_tianshou.algorithm.heads import ATOMS, make_head
from medqn_tianshou.algorithm.networks import action_values

HEADS = {
    "qr": (QRDQNPolicy, MeQRDQNPolicy, {"num_quantiles": 51}),
    "c51": (C51Policy, MeC51Policy, {}),
    "iqn": (IQNPolicy, MeIQNPolicy, {}),
    "rainbow": (RainbowPolicy, MeRainbowPolicy, {}),
}


class Fixed:
    """Always the same states."""

    states = np.random.default_rng(5).normal(size=(9, OBS_SIZE)).astype(np.float32)

    def sample(self, batch_size, buffer):
        return self.states

    def observe(self, obs):
        pass

    def state_dict(self):
        return {}

    load_state_dict = observe


def build(policy_class, head, lr=1e-2, optimizer=torch.optim.Adam, **options):
    torch.manual_seed(0)
    model = make_head(
        "c51" if head == "rainbow" else head,
        lambda outputs: MLPQNetwork(
            observation_shape=(OBS_SIZE,), action_count=outputs, hidden_sizes=(16,)
        ),
        ACTIONS,
    )
    return policy_class(
        model=model,
        optim=optimizer(model.parameters(), lr=lr),
        action_space=spaces.Discrete(ACTIONS),
        target_update_freq=4,
        **HEADS[head][2],
        **options,
    )


def buffer_of(kind=VectorReplayBuffer, **options):
    buffer = filled(kind(90, ENVS, **options))
    buffer._random_state = np.random.RandomState(3)
    return buffer


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("prioritized", [False, True])
def test_without_consolidation_it_is_tianshous_own_policy(head, prioritized):
    host, ours, _ = HEADS[head]
    trained = []
    for policy_class, options in ((host, {}), (ours, {"consolidation_coef": 0.0})):
        policy = build(policy_class, head, **options)
        options = {"alpha": 0.6, "beta": 0.4} if prioritized else {}
        kind = PrioritizedVectorReplayBuffer if prioritized else VectorReplayBuffer
        buffer = buffer_of(kind, **options)
        torch.manual_seed(7)
        np.random.seed(7)
        losses = [stats.loss for stats in update(policy, buffer, count=12)]
        trained.append((policy, losses))
    (expected, their_losses), (found, our_losses) = trained
    assert our_losses == pytest.approx(their_losses, abs=0)
    assert_same_parameters(found, expected)


@pytest.mark.parametrize(("head", "loss"), [("qr", wasserstein_loss), ("c51", categorical_kl_loss)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_gradient_is_that_of_the_td_loss_plus_lambda_times_the_distance(head, loss, reduction):
    coef, options = 0.7, {"optimizer": torch.optim.SGD, "lr": 0.5}
    plain = build(HEADS[head][1], head, consolidation_coef=0.0, **options)
    ours = build(
        HEADS[head][1], head, consolidation_coef=coef, state_sampler=Fixed(),
        consolidation_reduction=reduction, **options,
    )  # fmt: skip
    for policy in (plain, ours):
        with torch.no_grad():  # the networks differ, as after some updates
            for parameter in policy.model_old.parameters():
                parameter.mul_(0.9)
        policy.set_gradient_steps(1)
    before = [parameter.detach().clone() for parameter in ours.model.parameters()]
    distance = loss(
        ours.model(Fixed.states)[0], ours.model_old(Fixed.states)[0], reduction=reduction
    )
    grads = torch.autograd.grad(distance, list(ours.model.parameters()))
    np.random.seed(1)
    td_loss = update(plain, buffer_of())[0].loss
    np.random.seed(1)
    stats = update(ours, buffer_of())[0]
    for p, own, start, grad in zip(
        plain.model.parameters(), ours.model.parameters(), before, grads, strict=True
    ):
        torch.testing.assert_close(own - start, p - start - 0.5 * coef * grad, rtol=0, atol=1e-5)
    assert stats.td_loss == pytest.approx(td_loss)
    assert stats.consolidation_loss == pytest.approx(distance.item(), rel=1e-5)
    assert stats.loss == pytest.approx(td_loss + coef * distance.item())


@pytest.mark.parametrize("head", ["qr", "c51", "iqn", "rainbow"])
def test_consolidation_holds_the_network_and_adapts(head):
    drifts = {}
    for coef in (1e-9, 500.0):  # QR-DQN sums its loss over quantiles
        np.random.seed(1)
        policy = build(
            HEADS[head][1], head, consolidation_coef=coef, consolidation_epochs=2,
            state_sampler=Fixed(),
        )  # fmt: skip
        stats = update(policy, buffer_of(), count=20)
        assert policy.gradient_steps == 40
        drifts[coef] = np.mean([each.consolidation_drift for each in stats])
    assert drifts[500.0] < 0.8 * drifts[1e-9]
    adaptive = AdaptiveCoefficient(1e-6, start=0.1)
    policy = build(HEADS[head][1], head, consolidation_coef=adaptive)
    update(policy, buffer_of(), count=3)
    assert policy.consolidation_coef == adaptive.value != 0.1


def test_implicit_quantiles_are_compared_at_the_same_fractions():
    policy = build(MeIQNPolicy, "iqn", consolidation_coef=1.0)
    assert update(policy, buffer_of())[0].consolidation_loss == 0  # the networks are equal yet


class NoisyNetwork(nn.Module):
    """A categorical distribution for each action, from one noisy layer."""

    def __init__(self):
        super().__init__()
        self.layer = NoisyLinear(OBS_SIZE, ACTIONS * ATOMS)

    def forward(self, obs, state=None, info=None):
        logits = self.layer(torch.as_tensor(obs, dtype=torch.float32))
        return logits.view(-1, ACTIONS, ATOMS).softmax(dim=2), state


def test_rainbow_is_consolidated_without_the_noise_of_either_network():
    torch.manual_seed(0)
    model = NoisyNetwork()
    policy = MeRainbowPolicy(
        model=model, optim=torch.optim.SGD(model.parameters(), lr=0.0), consolidation_coef=1.0,
        action_space=spaces.Discrete(ACTIONS), target_update_freq=4, state_sampler=Fixed(),
    )  # fmt: skip
    # The first update copies the noise, too.
    losses = [stats.consolidation_loss for stats in update(policy, buffer_of(), count=3)]
    assert losses == [0, 0, 0]  # the weights stay equal
    assert policy.model.training
    assert policy.model_old.training
    online, target = (network(Fixed.states)[0] for network in (policy.model, policy.model_old))
    assert (online - target).abs().max() > 1e-3  # the noise does not


def test_prioritized_weights_hold_in_every_epoch():
    policy = build(MeQRDQNPolicy, "qr", consolidation_coef=0.0, consolidation_epochs=3)
    seen = []
    host = QRDQNPolicy.learn

    def learn(self, batch, **kwargs):
        seen.append(np.array(batch.weight))
        return host(self, batch, **kwargs)

    buffer = buffer_of(PrioritizedVectorReplayBuffer, alpha=0.6, beta=0.4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QRDQNPolicy, "learn", learn)
        update(policy, buffer)
    assert len(seen) == 3
    assert (seen[0] == seen[1]).all()
    assert (seen[0] == seen[2]).all()


@pytest.mark.parametrize("head", ["qr", "c51", "iqn"])
def test_action_values_are_the_expectations_that_the_policy_acts_by(head):
    policy = build(HEADS[head][1], head)
    values_BA = action_values(policy.model, Fixed.states)
    assert values_BA.shape == (9, ACTIONS)
    if head != "iqn":  # which samples fractions
        expected = policy.compute_q_value(policy.model(Fixed.states)[0], None)
        torch.testing.assert_close(values_BA, expected)
    before = torch.get_rng_state()
    assert (action_values(policy.model, Fixed.states) == values_BA).all()
    assert (torch.get_rng_state() == before).all()


def test_a_distance_of_values_is_refused():
    with pytest.raises(ValueError, match="consolidation_loss='kl' is for action values"):
        build(MeC51Policy, "c51", consolidation_loss="kl")
