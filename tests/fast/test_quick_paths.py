"""What was made faster gives the same numbers as the plain way."""

import copy
from unittest.mock import patch

import numpy as np
import pytest
import torch
from frames import ACTIONS, FRAMES, Frames, filled, make_policy
from gymnasium import spaces
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    FastMeDQNPolicy,
    LeanCollector,
    MLPQNetwork,
    RealStateSampler,
)
from medqn_tianshou.algorithm.networks import QNetwork, to_device
from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.fast import known

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture
def count_calls(monkeypatch):
    """Count the passes of a network, and the states in them.

    By a method of the class: for a network with a hook the fast paths step aside.
    """
    forward = QNetwork.forward
    sizes = {}

    def noted(network, obs, *args, **kwargs):
        sizes.setdefault(network, []).append(len(obs))
        return forward(network, obs, *args, **kwargs)

    monkeypatch.setattr(QNetwork, "forward", noted)
    # A replaced one makes them step aside, too.
    kinds = [kind for kind, name in known._METHODS if name == "forward" and kind.forward is noted]
    assert kinds
    for kind in kinds:
        monkeypatch.setitem(known._METHODS, (kind, "forward"), noted)

    def start(network):
        sizes[network] = []
        return sizes[network]

    return start


def plain_update(policy, buffer, batch_size, states_of_epochs):
    """The textbook way: separate passes for everything, the target network asked each time."""
    batch, _ = buffer.sample(batch_size)
    with torch.no_grad():
        value = policy.model_old(batch.obs_next)[0].max(dim=1).values
    alive = torch.as_tensor(~batch.terminated)
    returns = torch.as_tensor(batch.rew) + policy.gamma * value.double() * alive
    for states in states_of_epochs:
        if policy._iter % policy.freq == 0:
            policy.model_old.load_state_dict(policy.model.state_dict())
        q_B = policy.model(batch.obs)[0][torch.arange(batch_size), torch.as_tensor(batch.act)]
        td_loss = (returns.float() - q_B).pow(2).mean()
        with torch.no_grad():
            target = policy.model_old(states)[0]
        loss = (
            td_loss + policy.consolidation_coef * (policy.model(states)[0] - target).pow(2).mean()
        )
        policy.optim.zero_grad()
        loss.backward()
        policy.optim.step()
        policy._iter += 1


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("epochs", [1, 2])
def test_joint_passes_give_the_parameters_of_separate_ones(epochs, channels_last):
    buffer = filled()
    quick, plain = (
        make_policy(
            consolidation_epochs=epochs,
            consolidation_coef=0.7,
            state_sampler=RealStateSampler(seed=4),
            channels_last=channels_last and number == 0,
        )
        for number in range(2)
    )
    sampler = RealStateSampler(seed=4)
    buffers = [copy.deepcopy(buffer) for _ in range(2)]
    start = [parameter.clone() for parameter in plain.model.parameters()]
    for _ in range(5):  # with a copy to the target network in some, also between two epochs
        with policy_within_training_step(quick):
            quick.update(sample_size=8, buffer=buffers[0])
        plain_update(plain, buffers[1], 8, [sampler.sample(8, buffers[1]) for _ in range(epochs)])
    moved = 0.0
    for one, other, first in zip(
        quick.model.parameters(), plain.model.parameters(), start, strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
        moved = max(moved, float((other - first).detach().abs().max()))
    assert moved > 1e-4
    for one, other in zip(quick.model_old.parameters(), plain.model_old.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("buffer_class", [VectorReplayBuffer, CompactVectorReplayBuffer])
@pytest.mark.parametrize("device", DEVICES)
def test_no_more_passes_than_needed(buffer_class, device, count_calls):
    buffer = filled(buffer_class)
    policy = make_policy(device=device, target_update_freq=100)
    with policy_within_training_step(policy):
        policy.update(sample_size=8, buffer=buffer)  # with the first copy to the target network
        online, target = count_calls(policy.model), count_calls(policy.model_old)
        policy.update(sample_size=8, buffer=buffer)
    assert online == [16]  # TD batch and consolidation states
    assert target == [16]  # successors and consolidation states


def test_several_epochs_ask_the_target_network_once(count_calls):
    policy = make_policy(target_update_freq=100, consolidation_epochs=3)
    buffer = filled()
    with policy_within_training_step(policy):
        policy.update(sample_size=8, buffer=buffer)
        online, target = count_calls(policy.model), count_calls(policy.model_old)
        policy.update(sample_size=8, buffer=buffer)
    assert online == [16, 16, 16]
    assert target == [32]


def test_without_consolidation_no_state_is_drawn(count_calls):
    policy = make_policy(target_update_freq=100, consolidation_coef=0.0)
    buffer = filled()
    with (
        policy_within_training_step(policy),
        patch.object(policy.state_sampler, "sample", side_effect=AssertionError("drawn")),
    ):
        online, target = count_calls(policy.model), count_calls(policy.model_old)
        policy.update(sample_size=8, buffer=buffer)
    assert (online, target) == ([8], [8])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 5])
def test_actions_and_draws_are_those_of_forward_and_exploration_noise(count, eps, device):
    policy = make_policy(device=device)
    policy.set_eps(eps)
    policy.eval()
    generator = np.random.default_rng(0)
    chosen = []
    for _ in range(30):
        obs = generator.integers(256, size=(count, *FRAMES), dtype=np.uint8)
        state = np.random.get_state()
        quick = policy.actor(explore=True)(obs)
        after = np.random.get_state()[1:3]
        np.random.set_state(state)
        batch = Batch(obs=obs, info=Batch())
        with torch.no_grad():
            plain = policy.exploration_noise(policy(batch).act, batch)
        np.testing.assert_array_equal(quick, plain)
        np.testing.assert_equal(np.random.get_state()[1:3], after)
        chosen += plain.tolist()
    assert eps == 0.0 or len(set(chosen)) > 1


def test_the_network_is_not_asked_where_all_actions_are_random(count_calls):
    policy = make_policy()
    policy.set_eps(1.0)
    asked = count_calls(policy.model)
    policy.actor(explore=True)(np.zeros((2, *FRAMES), np.uint8))
    assert asked == []
    policy.actor(explore=False)(np.zeros((2, *FRAMES), np.uint8))
    assert asked == [2]


def test_a_policy_that_changes_how_actions_are_chosen_is_asked_in_its_own_way():
    class Contrary(FastMeDQNPolicy):
        def exploration_noise(self, act, batch):
            return np.full_like(act, 2)

    policy = make_policy(Contrary)
    buffer = VectorReplayBuffer(50, 1)
    collector = LeanCollector(policy, SingleVectorEnv(Frames()), buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=20)
    assert buffer.act[:20].tolist() == [2] * 20


def test_layers_with_hooks_are_called_with_them():
    network = MLPQNetwork(observation_shape=(4,), action_count=2)
    obs = torch.rand(3, 4)
    plain = nn.Sequential(network.features, network.advantage)(obs)
    torch.testing.assert_close(network(obs)[0], plain, rtol=0, atol=0)
    seen = []
    network.advantage[0].register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(network(obs)[0], plain, rtol=0, atol=0)
    assert seen == [1]


def test_the_mode_reaches_every_layer():
    class Picky(nn.Dropout):
        calls = 0

        def train(self, mode=True):
            Picky.calls += 1
            return super().train(mode)

    for dropout in (nn.Dropout(), Picky()):
        model = QNetwork(
            features=nn.Sequential(nn.Flatten(), dropout), hidden=(4, 8), action_count=2
        )
        optim = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = FastMeDQNPolicy(
            model=model, optim=optim, action_space=spaces.Discrete(2), target_update_freq=1
        )
        for mode in (False, True):
            assert policy.train(mode) is policy
            assert policy.training is mode
            assert {layer.training for layer in model.modules()} == {mode}
            assert not policy.model_old.training
    assert Picky.calls >= 2


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_and_tensors_reach_the_device(device):
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for given in (values, torch.as_tensor(values), torch.as_tensor(values).to(device)):
        tensor = to_device(given, torch.device(device))
        assert tensor.device.type == device
        np.testing.assert_array_equal(tensor.cpu().numpy(), values)


def test_pixels_are_scaled_alike_in_either_memory_format():
    obs = np.random.default_rng(0).integers(256, size=(2, *FRAMES), dtype=np.uint8)
    networks = [make_policy(channels_last=channels_last).model for channels_last in (False, True)]
    by_hand = networks[0](obs.astype(np.float32) / 255)[0]
    for network in networks:
        before = obs.copy()
        torch.testing.assert_close(network(obs)[0], by_hand, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(obs, before)
    assert networks[1].features[2].weight.is_contiguous(memory_format=torch.channels_last)


def test_one_environment_plays_as_tianshous_vector_environment_does():
    def play(envs):
        envs.seed(7)
        seen = [envs.reset()[0]]
        for action in np.random.default_rng(0).integers(ACTIONS, size=40):
            obs, reward, terminated, truncated, info = envs.step(np.array([action]), np.array([0]))
            seen += [obs, reward, terminated, truncated]
            assert info[0]["env_id"] == 0
            if terminated[0] or truncated[0]:
                seen.append(envs.reset(np.array([0]))[0])
        return seen, [space.sample() for space in envs.action_space]

    (ours, our_actions), (stock, actions) = (
        play(envs) for envs in (SingleVectorEnv(Frames()), DummyVectorEnv([Frames]))
    )
    assert our_actions == actions
    for one, other in zip(ours, stock, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
