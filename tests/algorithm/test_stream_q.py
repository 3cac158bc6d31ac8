"""Stream-Q: its optimizer, traces, initial weights and moments, worked out by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from medqn_tianshou.algorithm.normalized import Moments, NormalizedQNetwork, sparse_init
from medqn_tianshou.algorithm.stream_q import StreamQ, overshooting_bounded_step


@pytest.mark.parametrize(
    ("error", "trace", "expected"),
    [
        (0.5, [0.1, -0.1], [0.05, -0.05]),  # 2 * 1 * 0.2 = 0.4: not bounded
        (0.5, [1.0, -3.0], [0.5 / 8, -1.5 / 8]),  # 2 * 1 * 4 = 8
        (-4.0, [1.0, -3.0], [-4 / 32, 12 / 32]),  # 2 * 4 * 4 = 32
    ],
)
def test_the_step_is_bounded_so_that_it_does_not_overshoot(error, trace, expected):
    parameter = torch.zeros(2)
    overshooting_bounded_step([parameter], [torch.tensor(trace)], error, lr=1.0, kappa=2.0)
    torch.testing.assert_close(parameter, torch.tensor(expected))


@pytest.mark.parametrize("layer", [nn.Linear(50, 7), nn.Conv2d(5, 7, 3)])
def test_nine_of_ten_inputs_of_every_output_start_at_zero(layer):
    sparse_init(layer)
    rows = layer.weight.detach().reshape(7, -1)
    fan_in = rows.shape[1]
    assert ((rows == 0).sum(dim=1) == np.ceil(0.9 * fan_in)).all()
    assert rows.abs().max() <= fan_in**-0.5
    assert (layer.bias == 0).all()


def test_the_moments_are_those_of_all_values():
    values = torch.randn(20, 3)
    moments = Moments((3,))
    assert (moments.variance == 1).all()
    for value in values:
        moments.update(value)
    torch.testing.assert_close(moments.mean.float(), values.mean(dim=0))
    torch.testing.assert_close(moments.variance.float(), values.var(dim=0))


def make():
    torch.manual_seed(0)
    np.random.seed(0)
    network = NormalizedQNetwork(
        observation_shape=(4,), action_count=3, hidden_sizes=(32,), streaming=True
    )
    return StreamQ(network, lr=1.0, gamma=0.9)


OBS = np.array([[1.0, -1.0, 0.5, 2.0]], np.float32)


def test_traces_decay_and_end_with_the_episode_and_with_an_exploring_action():
    learner = make()
    greedy = int(learner.act(OBS, eps=0.0)[0])
    learner.observe(np.zeros(1), np.zeros(1, bool), OBS + 1)
    kept = [trace.clone() for trace in learner._traces]
    assert sum(trace.abs().sum() for trace in kept) > 0
    learner.act(OBS + 1, eps=0.0)
    inputs, action, _ = learner._last
    grads = torch.autograd.grad(learner.network.layers(inputs)[0, action], learner._parameters)
    learner.observe(np.zeros(1), np.zeros(1, bool), OBS)
    for trace, before, grad in zip(learner._traces, kept, grads, strict=True):
        torch.testing.assert_close(trace, 0.9 * 0.8 * before + grad)
    learner.act(OBS, eps=0.0)
    learner._last = (*learner._last[:2], False)  # as if the action had not been greedy
    learner.observe(np.zeros(1), np.zeros(1, bool), OBS)
    assert all((trace == 0).all() for trace in learner._traces)
    learner.act(OBS, eps=0.0)
    learner.observe(np.ones(1), np.ones(1, bool), OBS)
    assert all((trace == 0).all() for trace in learner._traces)
    assert learner._return == 1  # the last reward begins the sum of the next episode
    learner.act(OBS, eps=0.0)
    learner.observe(np.ones(1), np.zeros(1, bool), OBS)
    assert learner._return == 1.9
    assert 0 <= greedy < 3


def test_observations_are_normalized_by_all_that_were_seen_before_them():
    learner = make()
    seen = []
    for obs, is_last in ((OBS, False), (3 * OBS, True), (-OBS, False)):
        learner.act(obs, eps=0.0)
        if not seen or len(seen) == 3:  # the first of an episode
            seen.append(obs[0])
        inputs = learner._last[0][0]
        if len(seen) > 1:
            expected = (obs[0] - np.mean(seen, axis=0)) / np.std(seen, axis=0, ddof=1)
            np.testing.assert_allclose(inputs.numpy(), expected, rtol=1e-5)
        learner.observe(np.zeros(1), np.array([is_last]), obs + 1)
        seen.append(obs[0] + 1)  # a successor, also the last of an episode
    assert learner.network.moments.count == len(seen) == 5


def test_moments_stay_exact_over_many_values():
    moments = Moments(())
    values = torch.tensor([1e6, 1e6 + 1, 1e6 + 2], dtype=torch.float64).repeat(1000)
    for value in values:
        moments.update(value)
    assert float(moments.variance) == pytest.approx(float(values.var()), rel=1e-6)


def play(learner, steps):
    for step in range(steps):
        obs = OBS * (1 if step % 2 else -1)
        act = learner.act(obs, eps=0.3)
        learner.observe(np.array([float(act[0] == step % 2)]), np.ones(1, bool), obs)


def test_it_learns_which_action_pays_in_which_state():
    learner = make()
    play(learner, 1_500)
    for sign, best in ((1, 1), (-1, 0)):
        assert int(learner.network(OBS * sign)[0].argmax()) == best


def test_a_restored_learner_goes_on_in_the_same_way():
    one, other = make(), make()
    play(one, 31)
    other.load_state_dict(one.state_dict())
    for learner in (one, other):
        np.random.seed(1)
        play(learner, 20)
    for mine, theirs in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert (mine == theirs).all()
