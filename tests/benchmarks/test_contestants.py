"""The contestants of the speed benchmark do the same work, in turns."""

from functools import partial

import numpy as np
import pytest
import torch
from tianshou.data import Batch

from benchmarks import setups
from benchmarks.speed import bare_learner, bare_loop, contestants, races, stock

pytestmark = pytest.mark.slow

SMALL_ATARI = ["--buffer-size", "500"]


def test_turns_alternate_and_the_first_are_not_counted(monkeypatch):
    calls = []
    actions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    ticks = iter(range(100))
    monkeypatch.setattr(contestants.time, "perf_counter", lambda: next(ticks) ** 2)
    seconds = contestants.take_turns(actions, turns=2, dropped=1)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    # The n-th call took from (2n)^2 to (2n + 1)^2.
    assert seconds == {"a": [13, 17], "b": [9, 21]}


class Recorded:
    """Stands in for state samplers: gives what it was given, in order."""

    def __init__(self, batches):
        self._batches = iter(batches)

    def sample(self, batch_size, buffer):
        return next(self._batches)

    draw = sample


UPDATES = {
    "atari": ("atari", races.MEDQN_C20),
    "minatar": ("minatar", races.MINATAR_ENTRIES["medqn_r_c4_e2"].flags),
    "mountaincar": ("lowdim", races.MOUNTAIN_CAR_FLAGS["medqn_u_e4"][0]),
}


def our_policy(setup, states):
    envs = setup.make_vector_envs()
    policy = setup.family.make_policy(setup.value, device="cpu", envs=envs, sampler_seed=0)
    envs.close()
    policy.set_consolidation_coef(setup.value.lambda_end)
    policy.state_sampler = states
    return policy


def stock_policy(setup, states):
    policy = stock.make_stock_policy(setup)
    policy.state_sampler = states
    return policy


@pytest.mark.parametrize("make_policy", [our_policy, stock_policy])
@pytest.mark.parametrize("task", UPDATES)
def test_an_update_of_the_bare_loop_is_that_of_the_policies(task, make_policy):
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    setup = setups.Setup(*UPDATES[task])
    count, epochs = setup.value.batch_size, setup.value.consolidation_epochs
    space, actions = setup.spaces
    shape = (count * (2 + epochs), *space.shape)
    all_states = (
        generator.integers(0, 256, shape).astype(np.uint8)
        if task == "atari"
        else generator.integers(0, 2, shape).astype(space.dtype)
    )
    obs, *drawn, obs_next = np.split(all_states, 2 + epochs)
    act = generator.integers(actions.n, size=count)
    rew, factor = generator.random((2, count)).astype(np.float32)

    learner = bare_learner.BareLearner(setup)
    policy = make_policy(setup, Recorded(drawn))
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
        for mine, theirs in ((learner.network, policy.model), (learner.target, policy.model_old)):
            for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
                other.copy_(one)
        before = [parameter.clone() for parameter in learner.network.parameters()]
        value = policy.model_old(obs_next)[0].max(dim=1).values
    returns = torch.from_numpy(rew) + torch.from_numpy(factor) * value
    policy._iter = 1  # no copy to the target network now
    policy.learn(Batch(obs=obs, act=act, returns=returns[:, None], info=[]))

    to_floats = lambda x: torch.from_numpy(x).float()  # noqa: E731
    if task == "atari":
        to_floats = partial(bare_loop.to_floats, scaled=bool(setup.value.scale_obs))
    learner.update(to_floats(all_states), *map(torch.from_numpy, (act, rew, factor)))
    for one, other, old in zip(
        learner.network.parameters(), policy.model.parameters(), before, strict=True
    ):
        # Adam's first steps are of the learning rate's size, whatever the gradient.
        close = (one - other).abs() <= 0.01 * setup.value.lr
        assert close.float().mean() > 0.999
        assert (one - old).abs().max() > 0.1 * setup.value.lr


@pytest.mark.parametrize("kind", ["stock", "ours", "bare"])
@pytest.mark.parametrize("envs", [(), races.TEN], ids=["1 env", "10 envs"])
def test_a_contestant_updates_once_in_c_current_steps(kind, envs, tmp_path, monkeypatch):
    updates = []
    update = bare_learner.BareLearner.update
    monkeypatch.setattr(
        bare_learner.BareLearner, "update", lambda *args: updates.append(update(*args))
    )
    entry = contestants.Entry(kind, "atari", (*races.MEDQN_C20, *SMALL_ATARI, *envs))
    member = entry.build(tmp_path, ["--warmup-steps", "50"])
    member.advance(20)
    member.advance(40)
    if kind != "bare":
        assert member.trainer.env_step == 60
        assert member.trainer.policy.eps == 0.05
        updates = range(member.trainer.policy._iter)
        member.update()
        assert member.trainer.policy._iter == 4
    assert len(updates) == 3
    member.close()


def test_a_vector_of_one_is_an_environment_for_peers():
    setup = setups.Setup("atari", races.DQN_C10)
    env = contestants._OneOfAVector(setup.make_vector_envs())
    vector = setup.make_vector_envs()
    obs, info = env.reset(seed=3)
    np.testing.assert_array_equal(obs, vector.reset()[0][0])
    assert env.observation_space.contains(obs)
    assert isinstance(info, dict)
    for _ in range(20):
        act = env.action_space.sample()
        obs, rew, terminated, truncated, info = env.step(act)
        expected = vector.step([act])
        np.testing.assert_array_equal(obs, expected[0][0])
        assert (rew, terminated, truncated) == tuple(column[0] for column in expected[1:4])
        assert isinstance(info, dict)
