"""Compiled code gives torch's numbers: values, gradients and updates."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

from medqn_tianshou import (
    FastMeDQNPolicy,
    MinAtarQNetwork,
    MLPQNetwork,
    NatureQNetwork,
    RealStateSampler,
)
from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.algorithm.policy import NonFiniteLossError
from medqn_tianshou.fast.compiled import CompiledLoss
from medqn_tianshou.fast.known import KnownNetwork
from medqn_tianshou.fast.passes import scaled_images
from medqn_tianshou.fast.targets import join

GRID = (4, 10, 10)


def make_networks():
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    cells = generator.random((5, *GRID)) < 0.2
    yield "grid", MinAtarQNetwork(observation_shape=GRID, action_count=6), cells
    yield "grid of numbers", MinAtarQNetwork(observation_shape=GRID, action_count=6), cells * 3
    yield (
        "vector",
        MLPQNetwork(observation_shape=(3,), action_count=2),
        generator.normal(size=(5, 3)),
    )
    one_layer = MLPQNetwork(observation_shape=(3,), action_count=2, hidden_sizes=())
    yield "one layer", one_layer, generator.normal(size=(1, 3)).astype(np.float32)


NETWORKS = {name: (network, obs) for name, network, obs in make_networks()}


@pytest.mark.parametrize("name", NETWORKS)
def test_values_are_torchs_before_and_after_a_step(name):
    network, obs = copy.deepcopy(NETWORKS[name])
    known = KnownNetwork.of(network)
    compiled = known.compiled
    optim = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(3):
        q_BA = network(obs)[0]
        expected = q_BA.detach().numpy()
        for values in (compiled.act_values(obs), compiled.forward(obs)[0]):
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
        optim.zero_grad()
        q_BA.pow(2).sum().backward()
        optim.step()  # in place: the compiled pass sees it
        assert known.is_current


def test_what_is_not_a_number_stays_so():
    network, obs = copy.deepcopy(NETWORKS["vector"])
    obs = obs.copy()
    obs[0, 0] = np.nan
    expected = network(obs)[0].detach().numpy()
    assert np.isnan(expected[0]).all()
    compiled = KnownNetwork.of(network).compiled
    for values in (compiled.act_values(obs), compiled.forward(obs)[0]):
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        lambda network: network.double().float(),
        lambda network: network.load_state_dict(
            {name: value + 1 for name, value in network.state_dict().items()}, assign=True
        ),
        lambda network: network.advantage[0].register_forward_hook(lambda *_: None),
    ],
    ids=["moved", "assigned", "hooked"],
)
def test_it_knows_when_the_network_is_no_longer_its_own(change):
    network, obs = copy.deepcopy(NETWORKS["vector"])
    policy = FastMeDQNPolicy(
        model=network,
        optim=torch.optim.SGD(network.parameters(), lr=0.1),
        action_space=spaces.Discrete(2),
        target_update_freq=1,
    )
    policy.choose_actions(obs, explore=False)
    known = KnownNetwork.of(network)
    assert known.is_current
    change(network)
    assert not known.is_current
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(-1)
    expected = network(obs)[0].argmax(dim=1).tolist()
    assert policy.choose_actions(obs, explore=False).tolist() == expected


def test_a_copy_acts_by_its_own_parameters():
    network, obs = copy.deepcopy(NETWORKS["vector"])
    policy = FastMeDQNPolicy(
        model=network,
        optim=torch.optim.SGD(network.parameters(), lr=0.1),
        action_space=spaces.Discrete(2),
        target_update_freq=1,
    )
    before = policy.choose_actions(obs, explore=False)
    other = copy.deepcopy(policy)
    with torch.no_grad():
        other.model.advantage[-1].weight.mul_(-1)
        other.model.advantage[-1].bias.mul_(-1)
    np.testing.assert_array_equal(other.choose_actions(obs, explore=False), 1 - before)
    np.testing.assert_array_equal(policy.choose_actions(obs, explore=False), before)


@pytest.mark.parametrize(
    "network",
    [
        NatureQNetwork(observation_shape=(4, 84, 84), action_count=6),
        MLPQNetwork(observation_shape=(3,), action_count=2, dueling=True),
        MLPQNetwork(observation_shape=(3,), action_count=2).double(),
        QNetwork(
            features=nn.Sequential(nn.Conv2d(4, 2, 3, stride=2), nn.ReLU(), nn.Flatten()),
            hidden=(32, 4),
            action_count=2,
        ),
        QNetwork(features=nn.Sequential(nn.Flatten(), nn.Tanh()), hidden=(3, 4), action_count=2),
        nn.Linear(3, 2),
    ],
    ids=["large", "dueling", "double", "strided", "other layers", "other class"],
)
def test_what_it_cannot_do_is_left_to_torch(network):
    known = KnownNetwork.of(network)
    assert known is None or known.compiled is None


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_torchs(name):
    network, obs = copy.deepcopy(NETWORKS[name])
    known = KnownNetwork.of(network)
    compiled = known.compiled
    q_BA = network(obs)[0]
    grad_BA = torch.randn_like(q_BA)
    q_BA.backward(grad_BA)
    _, kept = compiled.forward(obs)
    gradients = compiled.backward(grad_BA.numpy(), kept)
    assert [p.data_ptr() for p in compiled.parameters] == [
        p.data_ptr() for p in network.parameters()
    ]
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert parameter.grad.abs().max() > 0
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["grid", "vector"])
@pytest.mark.parametrize(
    "options",
    [
        {"consolidation_coef": 0.0},
        {"consolidation_coef": 2.0, "consolidation_epochs": 3, "max_grad_norm": 0.05},
        {"consolidation_coef": 0.5, "clip_loss_grad": True, "is_double": True},
        {"consolidation_coef": 0.5, "consolidation_reduction": "sum", "estimation_step": 3},
        {"consolidation_coef": 0.5, "consolidation_loss": "kl"},  # not compiled
    ],
    ids=["dqn", "epochs, clipped", "huber, double", "sum, n-step", "kl"],
)
def test_compiled_updates_give_the_parameters_and_losses_of_torchs(name, options):
    results = []
    for compiled in (False, True):
        network, obs = copy.deepcopy(NETWORKS[name])
        actions = network(obs)[0].shape[1]
        generator = np.random.default_rng(5)
        buffer = VectorReplayBuffer(40, 1)
        shape = obs.shape[1:]
        for step in range(40):
            state = generator.random((2, 1, *shape)) * 3
            state = state < 0.5 if obs.dtype == bool else state
            batch = Batch(
                obs=state[0],
                obs_next=state[1],
                act=generator.integers(actions, size=1),
                rew=generator.normal(size=1) * 3,
                terminated=np.array([step % 7 == 6]),
                truncated=np.array([False]),
                done=np.array([step % 7 == 6]),
                info=Batch(),
            )
            buffer.add(batch)
        policy = FastMeDQNPolicy(
            model=network,
            # Not one that divides by the gradient's size: that would blow up rounding.
            optim=torch.optim.SGD(network.parameters(), lr=0.01),
            action_space=spaces.Discrete(actions),
            target_update_freq=5,
            state_sampler=RealStateSampler(seed=1),
            compiled=compiled,
            **{"is_double": False, **options},
        )
        policy.train()
        buffer._random_state = np.random.RandomState(3)
        with policy_within_training_step(policy):
            stats = [policy.update(16, buffer) for _ in range(8)]
        results.append((policy, stats))
    (plain, plain_stats), (quick, quick_stats) = results
    for expected, parameter in zip(plain.parameters(), quick.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)
    for expected, found in zip(plain_stats, quick_stats, strict=True):
        assert vars(found).keys() == vars(expected).keys()
        assert (found.consolidation_loss is None) == (options["consolidation_coef"] == 0)
        for key in ("loss", "td_loss", "consolidation_coef"):
            assert getattr(found, key) == pytest.approx(getattr(expected, key), rel=1e-4)
        if found.consolidation_loss is not None:
            assert found.consolidation_loss == pytest.approx(
                expected.consolidation_loss, rel=1e-3, abs=1e-9
            )


def test_compiled_updates_are_taken_where_they_apply(monkeypatch):
    taken = []
    differentiate = CompiledLoss.differentiate
    monkeypatch.setattr(
        CompiledLoss,
        "differentiate",
        lambda self, *args: taken.append(args) or differentiate(self, *args),
    )
    test_compiled_updates_give_the_parameters_and_losses_of_torchs(
        "vector", {"consolidation_coef": 1.0, "consolidation_epochs": 2}
    )
    assert len(taken) == 16


def test_a_loss_that_is_not_a_number_stops_compiled_updates():
    network = MLPQNetwork(observation_shape=(3,), action_count=2)
    policy = FastMeDQNPolicy(
        model=network,
        optim=torch.optim.SGD(network.parameters(), lr=0.1),
        action_space=spaces.Discrete(2),
        target_update_freq=1,
        consolidation_coef=0.0,
        compiled=True,
    )
    batch = Batch(
        obs=np.full((4, 3), np.nan), act=np.zeros(4, int), returns=torch.zeros(4, 1), info=Batch()
    )
    with pytest.raises(NonFiniteLossError, match="loss is nan"):
        policy.learn(batch)


def test_joining_copies_only_what_is_apart():
    whole = np.arange(24.0).reshape(6, 4)
    pieces = whole[:2], whole[2:5]
    joined = join(pieces)
    np.testing.assert_array_equal(joined, whole[:5])
    assert np.shares_memory(joined, whole)
    for apart in (
        (whole[:2], whole[3:]),
        (whole[2:], whole[:2]),
        (whole[:2].copy(), whole[2:].copy()),
        (whole[:2, :2], whole[2:4, :2]),
        (whole[:, :2], whole[:, 2:]),
    ):
        joined = join(apart)
        np.testing.assert_array_equal(joined, np.concatenate(apart))
        assert not np.shares_memory(joined, whole)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("frames", [4, 3])
def test_bytes_become_the_floats_that_torch_makes_of_them(scale, frames):
    network = NatureQNetwork(
        observation_shape=(frames, 84, 84), action_count=6, channels_last=True, scale_uint8=scale
    )
    images = torch.randint(0, 256, (5, frames, 84, 84), dtype=torch.uint8)
    expected = images.float() * (1 / 255) if scale else images.float()
    found = scaled_images(network, images.numpy())
    if frames == 4:
        assert torch.equal(found, expected)
        assert found.is_contiguous(memory_format=torch.channels_last)
    else:
        assert found.dtype == np.uint8  # left to the network
    seen = []
    network.features[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(images)
    assert torch.equal(seen[0], expected)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
