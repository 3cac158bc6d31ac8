"""Dict observations, which Tianshou hands to the network as a Batch, with consolidation."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learners import ACTIONS, update
from tianshou.data import Batch, VectorReplayBuffer
from torch import nn

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    FastMeDQNPolicy,
    MeDQNPolicy,
    RealStateSampler,
    UniformStateSampler,
)

ENVS = 2


class Joined(nn.Module):
    """Action values of a position and a map."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2 + 6, ACTIONS)

    def forward(self, obs, state=None, info=None):
        position = torch.as_tensor(obs.position)
        cells = torch.as_tensor(obs.map).flatten(1) / 255
        return self.layer(torch.cat([position, cells.float()], dim=1)), state


def observations(rng):
    return Batch(
        position=rng.normal(size=(ENVS, 2)).astype(np.float32),
        map=rng.integers(0, 256, (ENVS, 2, 3), np.uint8),
    )


def filled(buffer):
    rng = np.random.default_rng(0)
    obs = observations(rng)
    for _ in range(40):
        obs_next = observations(rng)
        buffer.add(
            Batch(
                obs=obs,
                obs_next=obs_next,
                act=rng.integers(ACTIONS, size=ENVS),
                rew=rng.normal(size=ENVS),
                terminated=rng.random(ENVS) < 0.1,
                truncated=np.zeros(ENVS, bool),
            )
        )
        obs = obs_next
    return buffer


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
@pytest.mark.parametrize("buffer_class", [VectorReplayBuffer, CompactVectorReplayBuffer])
@pytest.mark.parametrize("epochs", [1, 3])
def test_the_loss_is_that_of_the_sampled_dicts(policy_class, buffer_class, epochs):
    torch.manual_seed(0)
    model = Joined()
    policy = policy_class(
        model=model,
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        action_space=spaces.Discrete(ACTIONS),
        target_update_freq=1000,
        state_sampler=RealStateSampler(seed=1),
        consolidation_coef=0.5,
        consolidation_epochs=epochs,
    )
    buffer = filled(buffer_class(60, ENVS))
    update(policy, buffer, count=3)  # away from the target network
    sampler, online = copy.deepcopy(policy.state_sampler), copy.deepcopy(model)
    states = buffer.get(sampler.draw_indices(16, buffer), "obs")
    (stats,) = update(policy, buffer)
    expected = (online(states)[0] - policy.model_old(states)[0]).pow(2).mean().item()
    assert expected > 0
    if epochs == 1:
        assert stats.consolidation_loss == pytest.approx(expected, rel=1e-5)
        assert stats.loss == pytest.approx(stats.td_loss + 0.5 * expected, rel=1e-5)
    assert not torch.equal(online.layer.weight, model.layer.weight)
    assert policy.gradient_steps == 4 * epochs


def test_uniform_states_of_a_dict_are_refused_by_name():
    space = spaces.Dict(position=spaces.Box(-1, 1, (2,)), map=spaces.MultiBinary((2, 3)))
    with pytest.raises(ValueError, match=r"observation_space=Dict.* has no shape and dtype"):
        UniformStateSampler(observation_space=space)
