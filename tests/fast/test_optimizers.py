"""Optimizers through compiled code take torch's steps."""

import copy

import pytest
import torch
from learners import ENVS, assert_same_parameters, build, filled, update
from tianshou.data import VectorReplayBuffer
from torch import nn

from medqn_tianshou import FastMeDQNPolicy, RealStateSampler
from medqn_tianshou.fast.optimizers import FusedRMSprop
from medqn_tianshou.training.build import optimizer_of


@pytest.mark.parametrize("given", [2, 3], ids=["one without gradient", "all"])
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 1e-3, "alpha": 0.95, "eps": 0.01, "centered": True},
        {"lr": 1e-2},
        {"lr": 1e-3, "momentum": 0.5},  # not in the kernel
    ],
    ids=["centered", "plain", "momentum"],
)
def test_fused_rmsprop_takes_torchs_steps_and_keeps_its_state(options, given):
    torch.manual_seed(2)
    ours = [nn.Parameter(torch.randn(shape)) for shape in ((7, 5), (5,), (3,))]
    theirs = copy.deepcopy(ours)
    fused, stock = FusedRMSprop(ours, **options), torch.optim.RMSprop(theirs, **options)
    for step in range(30):
        for one, other in zip(ours[:given], theirs[:given], strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        fused.step()
        stock.step()
        if step == 15:  # the state is torch's own, and can be taken over
            state = copy.deepcopy(stock.state_dict())
            assert state["state"].keys() == fused.state_dict()["state"].keys()
            assert state["state"][0].keys() == fused.state_dict()["state"][0].keys()
            fused.load_state_dict(state)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    for one, other in zip(fused.state.values(), stock.state.values(), strict=True):
        for name, value in other.items():
            torch.testing.assert_close(one[name], value, rtol=1e-5, atol=1e-6)


def test_a_hook_runs_once_where_torchs_own_step_is_taken():
    torch.optim.RMSprop([nn.Parameter(torch.ones(3))])  # wraps the step of its class for hooks
    parameter = nn.Parameter(torch.ones(3))
    optim, calls = FusedRMSprop([parameter], momentum=0.5), []
    optim.register_step_pre_hook(lambda *_: calls.append(1))
    parameter.grad = torch.ones(3)
    optim.step()
    assert len(calls) == 1


def test_fused_rmsprop_takes_the_rate_that_a_schedule_sets():
    parameter = nn.Parameter(torch.ones(3))
    optim = FusedRMSprop([parameter], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optim, step_size=1, gamma=0.0)
    for expected_to_move in (True, False):
        before = parameter.detach().clone()
        parameter.grad = torch.ones(3)
        optim.step()
        schedule.step()
        assert bool((parameter != before).any()) == expected_to_move


def test_the_fused_optimizer_takes_the_same_steps():
    def trained(optimizer):
        policy = build(FastMeDQNPolicy, state_sampler=RealStateSampler(seed=0))
        policy.optim = optimizer(policy.model)
        update(policy, filled(VectorReplayBuffer(90, ENVS)), count=100)
        return policy

    optimizer_class, arguments = optimizer_of("adam", 1e-3)
    fused = trained(lambda model: optimizer_class(model.parameters(), **arguments))
    plain = trained(lambda model: torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False))
    assert_same_parameters(fused, plain, tolerance=1e-5)
