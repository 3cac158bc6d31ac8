"""PQN: its targets worked out by hand, and an update that fits them."""

import numpy as np
import pytest
import torch

from medqn_tianshou.algorithm.normalized import NormalizedQNetwork
from medqn_tianshou.algorithm.pqn import PQN, lambda_returns


def test_the_targets_mix_returns_and_values_and_stop_at_the_end_of_an_episode():
    rewards = np.array([[1.0], [2.0], [3.0]])
    dones = np.array([[0.0], [1.0], [0.0]])
    values = np.array([[10.0], [20.0], [40.0]])
    found = lambda_returns(rewards, dones, values, gamma=0.5, decay=0.25)
    third = 3 + 0.5 * 40
    second = 2.0
    first = 1 + 0.5 * (0.25 * second + 0.75 * 10)
    np.testing.assert_allclose(found[:, 0], [first, second, third])


@pytest.mark.parametrize(("decay", "expected"), [(0.0, 1 + 0.9 * 5), (1.0, 1 + 0.9 + 0.81 * 7)])
def test_without_decay_it_is_one_step_and_with_all_of_it_the_whole_rollout(decay, expected):
    values = np.array([[5.0], [7.0]])
    found = lambda_returns(np.ones((2, 1)), np.zeros((2, 1)), values, gamma=0.9, decay=decay)
    assert found[0, 0] == pytest.approx(expected)


def test_its_network_is_initialized_and_normalized_as_the_released_one():
    torch.manual_seed(0)
    network = NormalizedQNetwork(
        observation_shape=(4, 10, 10), action_count=200, hidden_sizes=(128,), streaming=False
    )
    convolution, norm, *_, hidden, _, _, output = network.layers
    for layer, gain in ((convolution, 2.0), (hidden, 2.0), (output, 1.0)):
        fan_in = layer.weight[0].numel()
        assert float(layer.weight.detach().var()) == pytest.approx(gain / fan_in, rel=0.15)
        assert float(layer.weight.detach().abs().max()) <= 2 * (gain / fan_in) ** 0.5 / 0.879
        assert (layer.bias == 0).all()
    values = torch.randn(3, 16, 8, 8)
    deviation, mean = torch.std_mean(values, dim=1, keepdim=True, correction=0)
    torch.testing.assert_close(norm(values), (values - mean) / deviation, rtol=1e-4, atol=1e-4)
    assert norm.weight.shape == (16,)


def make(**options):
    torch.manual_seed(0)
    np.random.seed(0)
    network = NormalizedQNetwork(
        observation_shape=(2,), action_count=3, hidden_sizes=(16,), streaming=False
    )
    return PQN(
        network, lr=0.01, gamma=0.9, total_env_steps=2_000, env_count=4, rollout=5,
        minibatches=2, **options,
    )  # fmt: skip


def play(learner, steps):
    """An environment of one step, whose reward is the action."""
    losses = []
    obs = np.ones((4, 2), np.float32)
    for _ in range(steps):
        act = learner.act(obs, eps=0.5)
        losses.append(learner.observe(act.astype(float), np.ones(4, bool), obs))
    return losses


def test_it_learns_at_the_end_of_each_rollout_and_finds_the_best_action():
    learner = make()
    losses = play(learner, 500)
    assert [step for step, loss in enumerate(losses) if loss is not None] == list(range(4, 500, 5))
    assert learner.gradient_steps == 100 * 2 * 2
    q_A = learner.network(np.ones((1, 2), np.float32))[0][0]
    torch.testing.assert_close(q_A, torch.tensor([0.0, 1.0, 2.0]), atol=0.1, rtol=0)
    assert learner.optim.param_groups[0]["lr"] < 1e-4  # it falls to 0 over the run


def test_a_restored_learner_goes_on_in_the_same_way():
    one, other = make(), make()
    play(one, 50)
    assert one.is_between_rollouts
    other.load_state_dict(one.state_dict())
    for learner in (one, other):
        torch.manual_seed(1)
        np.random.seed(1)
        play(learner, 20)
    for mine, theirs in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert (mine == theirs).all()
