"""Compiled code gives torch's numbers: values, gradients and whole updates."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import update
from tianshou.data import Batch
from torch import nn

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    FastMeDQNPolicy,
    MeDQNPolicy,
    MinAtarQNetwork,
    MLPQNetwork,
    NatureQNetwork,
    RealStateSampler,
)
from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.algorithm.policy import NonFiniteLossError
from medqn_tianshou.fast import flat
from medqn_tianshou.fast.blas import product_scratch
from medqn_tianshou.fast.flat import FlatNetwork
from medqn_tianshou.fast.known import KnownNetwork
from medqn_tianshou.fast.learner import SmallLearner
from medqn_tianshou.fast.passes import scaled_images
from medqn_tianshou.fast.targets import join

ACTIONS = 3


def make_network(name):
    torch.manual_seed(0)
    if name == "vector":
        return MLPQNetwork(observation_shape=(4,), action_count=ACTIONS)
    if name == "one layer":
        return MLPQNetwork(observation_shape=(4,), action_count=ACTIONS, hidden_sizes=())
    shape = {"grid": (4, 10, 10), "odd grid": (7, 6, 6), "grid of numbers": (4, 10, 10)}[name]
    return MinAtarQNetwork(observation_shape=shape, action_count=ACTIONS)


def make_observations(name, count, generator):
    if name in ("vector", "one layer"):
        return generator.normal(size=(count, 4)).astype(np.float32)
    cells = generator.random((count, *((7, 6, 6) if name == "odd grid" else (4, 10, 10)))) < 0.2
    return cells * 3 if name == "grid of numbers" else cells


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


@pytest.mark.parametrize("where", ["observation", "weight"])
@pytest.mark.parametrize("name", ["vector", "grid"])
def test_what_is_not_a_number_stays_so(name, where):
    network = make_network(name)
    obs = make_observations(name, 4, np.random.default_rng(0)).astype(np.float32)
    if where == "observation":
        obs[0].flat[0] = np.nan
    else:
        with torch.no_grad():
            network.advantage[0].weight[0, 0] = torch.nan
    expected = network(obs)[0].detach().numpy()
    assert np.isnan(expected[0]).all()
    values = FlatNetwork.of(network).action_values(obs)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


def make_policy(policy_class, name, optimizer="adam", *, network=None, **options):
    model = make_network(name) if network is None else network
    # Small constants in a divisor would blow up the rounding of gradients near zero.
    optim = {
        "adam": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3),
        "adam, fused": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3, fused=True),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-2),
        "rmsprop, centered": lambda p: torch.optim.RMSprop(
            p, lr=1e-3, alpha=0.95, eps=0.01, centered=True
        ),
        "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3, amsgrad=True),
        "decay": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-2, weight_decay=0.1),
    }[optimizer](model.parameters())
    schedule = options.pop("schedule", False)
    return policy_class(
        model=model,
        optim=optim,
        action_space=spaces.Discrete(ACTIONS),
        state_sampler=RealStateSampler(seed=1),
        lr_scheduler=torch.optim.lr_scheduler.ExponentialLR(optim, 0.9) if schedule else None,
        **{"target_update_freq": 7, "is_double": False, **options},
    )


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
    policy.load_state_dict(other.state_dict())
    policy.optim.load_state_dict(copy.deepcopy(other.optim.state_dict()))


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
    assert fast.optim.param_groups[0]["lr"] == plain.optim.param_groups[0]["lr"]
    for one, other in zip(fast.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-2, atol=1e-4)
    states = [policy.optim.state_dict()["state"] for policy in (fast, plain)]
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
        ("adam", lambda policy: policy.optim.register_step_pre_hook(lambda *_: None)),
        ("adam", lambda policy: policy.optim.add_param_group({"params": [nn.Parameter(_one())]})),
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
    before = copy.deepcopy(policy.state_dict())
    update(other, copy.deepcopy(buffer), count=3)
    for name, value in policy.state_dict().items():
        assert torch.equal(value, before[name])
    update(policy, buffer, count=3)
    assert_close(other, policy, 0.0)


def test_an_optimizer_state_that_is_loaded_or_changed_counts():
    policies = [make_policy(cls, "vector") for cls in (FastMeDQNPolicy, MeDQNPolicy)]
    for policy in policies:
        buffer = make_buffer("vector")
        update(policy, buffer, count=3)
        saved = copy.deepcopy(policy.optim.state_dict())
        update(policy, buffer, count=3)
        policy.optim.load_state_dict(saved)
        update(policy, buffer, count=3)
        for state in policy.optim.state.values():
            state["exp_avg"] = torch.zeros_like(state["exp_avg"])
        policy.optim.param_groups[0]["lr"] = 1e-2
        policy.optim.zero_grad()
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
