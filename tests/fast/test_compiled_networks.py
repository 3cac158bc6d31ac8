"""Compiled passes give torch's values, and know which networks they can compute."""

import numpy as np
import pytest
import torch
from small_networks import make_network, make_observations, make_policy
from torch import nn

from medqn_tianshou import FastMeDQNPolicy, MinAtarQNetwork, MLPQNetwork, NatureQNetwork
from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.fast import flat, kernels
from medqn_tianshou.fast.blas import product_scratch
from medqn_tianshou.fast.flat import FlatNetwork
from medqn_tianshou.fast.known import KnownNetwork
from medqn_tianshou.fast.passes import scaled_images
from medqn_tianshou.fast.targets import join

NAMES = ("vector", "one layer", "grid", "odd grid", "grid of numbers")


@pytest.mark.parametrize("blas", [True, False], ids=["blas", "loops"])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_torchs_before_and_after_a_step(name, blas, monkeypatch):
    monkeypatch.setattr(flat, "product_scratch", lambda: product_scratch(blas=blas))
    network = make_network(name)
    known = KnownNetwork.of(network, flatten=True)
    optim = torch.optim.SGD(network.parameters(), lr=0.1)
    generator = np.random.default_rng(0)
    for count in (1, 5, 2):
        obs = make_observations(name, count, generator)
        q_BA = network(obs)[0]
        values = known.flat.action_values(obs)
        np.testing.assert_allclose(values, q_BA.detach().numpy(), rtol=1e-4, atol=1e-5)
        optim.zero_grad()
        q_BA.pow(2).sum().backward()
        optim.step()  # in place: the compiled pass sees it
        assert known.is_current


@pytest.mark.parametrize("bias", [-0.3, 0.3], ids=["mostly inactive", "mostly active"])
def test_gradients_are_torchs_however_many_features_are_active(bias):
    network = make_network("grid")
    with torch.no_grad():
        network.features[0].bias.fill_(bias)
    generator = np.random.default_rng(0)
    obs = make_observations("grid", 7, generator)
    q_BA = network(obs)[0]
    grad_BA = generator.normal(size=q_BA.shape).astype(np.float32)
    expected = torch.autograd.grad(q_BA, list(network.parameters()), torch.from_numpy(grad_BA))
    active = (network.features(torch.as_tensor(obs).float()) > 0).float().mean()
    assert (active < 0.5) == (bias < 0)

    compiled = FlatNetwork.of(network)
    layout, work = compiled.layout, flat.make_work(compiled.layout, len(obs))
    values = kernels.values_of(compiled.as_input(obs), compiled.values, layout, work)
    np.testing.assert_allclose(values, q_BA.detach().numpy(), rtol=1e-4, atol=1e-5)
    work.gradients[work.places[-1] :][: grad_BA.size] = grad_BA.reshape(-1)
    grads = flat.aligned_zeros(len(compiled.values))
    kernels.backward(compiled.values, grads, layout, work, len(obs))
    for own, other in zip(compiled.views(grads), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", ["observation", "weight"])
@pytest.mark.parametrize("name", ["vector", "grid"])
def test_what_is_not_a_number_stays_so(name, where):
    network = make_network(name)
    obs = make_observations(name, 4, np.random.default_rng(0)).astype(np.float32)
    if where == "observation":
        obs[0].flat[0] = np.nan
    else:
        with torch.no_grad():
            network.advantage[0].weight[0] = torch.nan
    expected = network(obs)[0].detach().numpy()
    assert np.isnan(expected[0]).all()
    values = FlatNetwork.of(network).action_values(obs)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


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
    policy = make_policy(FastMeDQNPolicy, "vector")
    network, obs = policy.model, make_observations("vector", 5, np.random.default_rng(0))
    policy.actor(explore=False)(obs)
    known = policy._networks.of(network)
    assert known.is_current
    change(network)
    assert not known.is_current
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(-1)
    expected = network(obs)[0].argmax(dim=1).tolist()
    assert policy.actor(explore=False)(obs).tolist() == expected


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
        MinAtarQNetwork(observation_shape=(4, 10, 12), action_count=2),
        QNetwork(features=nn.Sequential(nn.Flatten(), nn.Tanh()), hidden=(3, 4), action_count=2),
        nn.Linear(3, 2),
    ],
    ids=["large", "dueling", "double", "strided", "not square", "other layers", "other class"],
)
def test_what_it_cannot_do_is_left_to_torch(network):
    known = KnownNetwork.of(network, flatten=True)
    assert known is None or known.flat is None


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
