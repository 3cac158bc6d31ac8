"""MeDQNPolicy against Tianshou's DQNPolicy and against independent computations."""

import copy

import numpy as np
import pytest
import torch
from learners import ACTIONS, ENVS, OBS_SIZE, assert_same_parameters, build, filled, update
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.policy import DQNPolicy

from medqn_tianshou import MeDQNPolicy, RealStateSampler
from medqn_tianshou.algorithm.stats import NonFiniteLossError


class StubSampler:
    """Hands out prepared batches of states, one per gradient step."""

    def __init__(self, batches):
        self.batches = iter(batches)
        self.sizes = []

    def sample(self, batch_size, buffer):
        self.sizes.append(batch_size)
        return next(self.batches)

    def observe(self, obs):
        self.observed = obs


@pytest.mark.parametrize("is_double", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    ("prioritized", "options"),
    [
        (False, {}),
        (False, {"dueling": True, "lr_decay": True}),
        (False, {"clip_loss_grad": True}),
        (True, {}),
        (True, {"dueling": True, "lr_decay": True}),
        # Prioritized with Huber: there Tianshou drops the weights and we do not, see below.
    ],
    ids=str,
)
def test_without_consolidation_it_is_dqn_parameter_for_parameter(
    is_double, n_step, prioritized, options
):
    options = {**options, "is_double": is_double, "estimation_step": n_step}

    def trained(policy_class, **more):
        np.random.seed(0)  # what prioritized buffers draw from
        buffer = filled(
            PrioritizedVectorReplayBuffer(90, ENVS, alpha=0.6, beta=0.4)
            if prioritized
            else VectorReplayBuffer(90, ENVS)
        )
        policy = build(policy_class, **options, **more)
        initial = copy.deepcopy(policy.model.state_dict())
        stats = update(policy, buffer, count=30)
        assert not torch.equal(initial["advantage.0.weight"], policy.model.advantage[0].weight)
        return policy, [stat.loss for stat in stats]

    dqn, dqn_losses = trained(DQNPolicy)
    medqn, medqn_losses = trained(MeDQNPolicy, consolidation_coef=0.0, consolidation_epochs=1)
    assert_same_parameters(medqn, dqn)
    assert medqn_losses == dqn_losses


@pytest.mark.parametrize("kind", ["mse", "huber"])
@pytest.mark.parametrize("first_sync_after", [100, 5])
def test_three_epochs_equal_an_independent_computation(kind, first_sync_after):
    """TD targets once; new states each epoch; the sync where it falls, even between epochs."""
    coef, epochs, gamma, updates = 0.7, 3, 0.9, 3
    state_batches = np.random.default_rng(5).normal(size=(epochs * updates, 8, OBS_SIZE))
    state_batches = state_batches.astype(np.float32)
    sampler = StubSampler(state_batches)
    policy = build(
        MeDQNPolicy,
        lr=0.05,
        dtype=torch.float64,  # Adam divides by the size of the gradient: it amplifies rounding
        is_double=False,
        discount_factor=gamma,
        target_update_freq=first_sync_after,
        state_sampler=sampler,
        consolidation_coef=coef,
        consolidation_epochs=epochs,
        consolidation_batch_size=8,
        consolidation_loss=kind,
    )
    online = copy.deepcopy(policy.model)
    target = copy.deepcopy(policy.model)
    optim = torch.optim.Adam(online.parameters(), lr=0.05)
    buffer = filled(VectorReplayBuffer(90, ENVS))
    twin = filled(VectorReplayBuffer(90, ENVS))  # draws the same indices

    gradient_steps = 0
    for _ in range(updates):
        (stats,) = update(policy, buffer)
        batch, _ = twin.sample(16)
        with torch.no_grad():
            next_value = target(batch.obs_next)[0].max(dim=1).values
            alive = torch.tensor(1.0 - batch.terminated)
            returns = torch.tensor(batch.rew) + gamma * alive * next_value
        td_losses, consolidation_losses = [], []
        for _ in range(epochs):
            if gradient_steps % first_sync_after == 0:
                target.load_state_dict(online.state_dict())
            states = state_batches[gradient_steps]
            difference = online(states)[0] - target(states)[0].detach()
            size = difference.abs()
            distance = (
                difference**2
                if kind == "mse"
                else torch.where(size < 1, difference**2 / 2, size - 0.5)
            )
            q = online(batch.obs)[0].gather(1, torch.tensor(batch.act)[:, None])[:, 0]
            td_loss, consolidation = ((returns - q) ** 2).mean(), distance.mean()
            optim.zero_grad()
            (td_loss + coef * consolidation).backward()
            optim.step()
            gradient_steps += 1
            td_losses.append(td_loss.item())
            consolidation_losses.append(consolidation.item())
        assert stats.td_loss == pytest.approx(np.mean(td_losses), abs=1e-9)
        assert stats.consolidation_loss == pytest.approx(np.mean(consolidation_losses), abs=1e-9)
        assert stats.loss == pytest.approx(stats.td_loss + coef * stats.consolidation_loss)
        assert stats.consolidation_coef == coef

    assert policy.gradient_steps == gradient_steps == epochs * updates
    assert sampler.sizes == [8] * gradient_steps
    assert np.mean(consolidation_losses) > 1e-4  # the term was not idle
    for name, value in online.state_dict().items():
        torch.testing.assert_close(policy.model.state_dict()[name], value, rtol=0, atol=1e-9)
    for name, value in target.state_dict().items():
        torch.testing.assert_close(policy.model_old.state_dict()[name], value, rtol=0, atol=1e-9)


def test_consolidation_loss_is_zero_right_after_a_target_sync_and_only_then():
    policy = build(
        MeDQNPolicy, target_update_freq=4, state_sampler=RealStateSampler(seed=0), lr=0.01
    )
    stats = update(policy, filled(VectorReplayBuffer(90, ENVS)), count=12)
    zero = [index for index, stat in enumerate(stats) if stat.consolidation_loss < 1e-12]
    assert zero == [0, 4, 8]


def test_consolidation_keeps_the_network_near_its_target():
    def drift(coef):
        policy = build(
            MeDQNPolicy,
            target_update_freq=1000,
            state_sampler=RealStateSampler(seed=0),
            consolidation_coef=coef,
        )
        buffer = filled(VectorReplayBuffer(90, ENVS))
        update(policy, buffer, count=100)
        obs = buffer.obs
        return (policy.model(obs)[0] - policy.model_old(obs)[0]).pow(2).mean().item()

    assert drift(50.0) < 0.1 * drift(0.01)


@pytest.mark.parametrize("clip_loss_grad", [False, True])
def test_prioritized_weights_are_respected(clip_loss_grad):
    np.random.seed(0)
    buffer = filled(PrioritizedVectorReplayBuffer(90, ENVS, alpha=0.6, beta=0.4))
    policy = build(
        MeDQNPolicy,
        consolidation_coef=1.0,
        clip_loss_grad=clip_loss_grad,
        state_sampler=RealStateSampler(seed=0),
    )
    buffer.update_weight(np.arange(60), np.linspace(0.1, 5.0, 60))
    state = np.random.get_state()
    batch, indices = buffer.sample(16)
    assert np.ptp(batch.weight) > 0.1
    weight = torch.tensor(batch.weight)
    with torch.no_grad():
        q = policy.model(batch.obs)[0].gather(1, torch.tensor(batch.act)[:, None])[:, 0]
        returns = policy.process_fn(batch, buffer, indices).returns[:, 0]
        error = returns - q
        size = error.abs()
        loss = torch.where(size < 1, error**2 / 2, size - 0.5) if clip_loss_grad else error**2
        expected = (loss * weight).mean().item()
    np.random.set_state(state)
    (stats,) = update(policy, buffer)
    assert stats.td_loss == pytest.approx(expected, rel=1e-5)
    priorities = (np.abs(error.numpy()) + np.finfo(np.float32).eps) ** 0.6
    np.testing.assert_allclose(buffer.weight[indices], priorities, rtol=1e-5)


def test_gradient_norm_is_clipped():
    def largest_step(max_grad_norm):
        policy = build(MeDQNPolicy, state_sampler=RealStateSampler(), max_grad_norm=max_grad_norm)
        policy.optim = torch.optim.SGD(policy.model.parameters(), lr=1.0)
        before = copy.deepcopy(policy.model)
        update(policy, filled(VectorReplayBuffer(90, ENVS)))
        steps = zip(policy.model.parameters(), before.parameters(), strict=True)
        return torch.cat([(new - old).flatten() for new, old in steps]).norm().item()

    assert largest_step(None) > 0.1
    assert largest_step(0.05) == pytest.approx(0.05, rel=1e-3)


def filled_with_masks(buffer_count):
    rng = np.random.default_rng(0)
    buffer = VectorReplayBuffer(64, buffer_count)
    for _ in range(6):
        obs = rng.normal(size=(2, buffer_count, OBS_SIZE)).astype(np.float32)
        mask = np.arange(ACTIONS) != rng.integers(ACTIONS, size=(2, buffer_count, 1))
        buffer.add(
            Batch(
                obs=Batch(obs=obs[0], mask=mask[0]),
                obs_next=Batch(obs=obs[1], mask=mask[1]),
                act=np.zeros(buffer_count, int),
                rew=np.ones(buffer_count),
                terminated=np.zeros(buffer_count, bool),
                truncated=np.zeros(buffer_count, bool),
            )
        )
    return buffer


@pytest.mark.parametrize("buffer_count", [1, 2, 8])
def test_any_number_of_environments_and_masked_observations(buffer_count):
    policy = build(MeDQNPolicy, state_sampler=RealStateSampler(seed=0), consolidation_epochs=2)
    stats = update(policy, filled_with_masks(buffer_count), count=3)
    assert stats[-1].consolidation_loss > 0


@pytest.mark.parametrize("is_double", [False, True])
def test_action_masks_count_in_the_targets_as_in_dqn(is_double):
    dqn = build(DQNPolicy, is_double=is_double, lr=0.01)
    medqn = build(MeDQNPolicy, is_double=is_double, lr=0.01, consolidation_coef=0.0)
    for policy in (dqn, medqn):
        update(policy, filled_with_masks(4), count=50)
    assert_same_parameters(medqn, dqn)


def test_a_loss_that_is_not_a_number_is_an_error():
    policy = build(MeDQNPolicy, consolidation_coef=0.0)
    batch = Batch(
        obs=np.full((4, OBS_SIZE), np.nan, np.float32),
        act=np.zeros(4, int),
        returns=torch.zeros(4, 1),
        info=Batch(),
    )
    with pytest.raises(NonFiniteLossError, match="loss is nan at gradient step 1"):
        policy.learn(batch)
