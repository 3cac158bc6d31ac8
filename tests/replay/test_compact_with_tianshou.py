"""Tianshou's collectors and policies, and ours, work with CompactVectorReplayBuffer."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from compact_oracle import Play, assert_same, assert_same_transitions, smallest_cap, step
from gymnasium import spaces
from random_play import Game, bits
from tianshou.data import Collector, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.policy import DQNPolicy, RainbowPolicy
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import NoisyLinear
from tianshou.utils.torch_utils import policy_within_training_step

from medqn_tianshou import (
    CompactPrioritizedVectorReplayBuffer,
    CompactVectorReplayBuffer,
    FastMeDQNPolicy,
    LeanCollector,
    MeDQNPolicy,
    MLPQNetwork,
    RealStateSampler,
)

pytestmark = pytest.mark.slow


def make_policy(policy_class=DQNPolicy, shape=(64,), actions=2, **options):
    torch.manual_seed(0)
    model = MLPQNetwork(observation_shape=shape, action_count=actions, hidden_sizes=(16,))
    policy = policy_class(
        model=model,
        optim=torch.optim.Adam(model.parameters()),
        action_space=spaces.Discrete(actions),
        target_update_freq=7,
        **options,
    )
    policy.set_eps(0.5)
    return policy


class Walk(gym.Env):
    """Ends by termination or truncation after a random number of steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (64,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, longest):
        self.longest = longest

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, self.longest))
        return self._observe(), {}

    def step(self, action):
        self.left -= 1
        terminated, truncated = (self.left == 0 and action == how for how in range(2))
        return self._observe(), 0.1 * action, terminated, truncated, {"left": self.left}

    def _observe(self):
        return self.np_random.normal(size=64).astype(np.float32)


def collected(collector_class, buffer, longest, calls):
    np.random.seed(3)
    envs = DummyVectorEnv([lambda: Walk(longest)] * 3)
    envs.seed(5)
    collector = collector_class(make_policy(), envs, buffer, exploration_noise=True)
    collector.reset()
    return [collector.collect(**call) for call in calls]


@pytest.mark.parametrize("collector_class", [Collector, LeanCollector])
@pytest.mark.parametrize("size", [1200, 90], ids=["filling", "wrapping"])
def test_collectors_store_the_same_as_in_tianshous_buffer(collector_class, size):
    calls = [{"n_step": 60}, {"n_episode": 8}, {"n_step": 99, "reset_before_collect": True}]
    buffer, raw = CompactVectorReplayBuffer(size, 3, keep=("info",)), VectorReplayBuffer(size, 3)
    stats, expected = (collected(collector_class, one, 20, calls) for one in (buffer, raw))
    assert len(buffer) == len(raw) == min(size, sum(stat.n_collected_steps for stat in expected))
    assert_same_transitions(buffer[:], raw[:])
    for one, other in zip(stats, expected, strict=True):
        np.testing.assert_array_equal(one.lens, other.lens)
        np.testing.assert_array_equal(one.returns, other.returns)
    if collector_class is Collector:
        assert_same(buffer[:].info, raw[:].info)
        assert raw[:].info.left.max() > 10


@pytest.mark.parametrize("collector_class", [Collector, LeanCollector])
def test_collectors_go_on_when_the_cap_cuts_episodes(collector_class):
    calls = [{"n_step": 300}, {"n_episode": 20}]
    cap = smallest_cap(step(*np.zeros((2, 64), np.float32)), 9000, 3)
    buffer, raw = CompactVectorReplayBuffer(9000, 3, max_bytes=cap), VectorReplayBuffer(9000, 3)
    stats, expected = (collected(collector_class, one, 90, calls) for one in (buffer, raw))
    for one, other in zip(stats, expected, strict=True):
        np.testing.assert_array_equal(one.returns, other.returns)
        # Tianshou's takes what the buffer still holds of an episode for its length.
        same = one.lens == other.lens
        assert not same.all() if collector_class is Collector else same.all()
    assert 3 <= len(buffer) < 200
    assert buffer.nbytes <= cap


def test_a_collector_may_reset_the_buffer_within_an_episode():
    buffer = CompactVectorReplayBuffer(900, 3)
    envs = DummyVectorEnv([lambda: Walk(30)] * 3)
    envs.seed(5)
    collector = Collector(make_policy(), envs, buffer)
    collector.reset()
    for _ in range(10):
        stats = collector.collect(n_step=30)
        assert (stats.lens < 30).all()
        collector.reset_buffer(keep_statistics=True)


@pytest.mark.parametrize(
    ("policy_class", "kind"),
    [(DQNPolicy, "floats"), (DQNPolicy, "stacks"), (MeDQNPolicy, "frames")],
)
def test_training_gives_the_same_parameters_as_with_tianshous_buffer(policy_class, kind):
    """From the same indices, of which Tianshou's buffer knows the successors."""
    game = Game(
        envs=3,
        size=900,
        steps=300,
        kind=(lambda rng, _: {"": rng.normal(size=4).astype(np.float32)})
        if kind == "floats"
        else bits,
        stack_num=1 if kind == "floats" else 3,
        layout="stacks" if kind == "stacks" else "frames",
        break_chance=0.0,
        wild_chance=0.0,
    )
    raw = game.make(VectorReplayBuffer, ignore_obs_next=True)
    buffer = game.make()
    Play(game, buffer, raw).run()
    indices = raw.sample_indices(0)
    last = raw.next(raw.next(indices))
    known = indices[(raw.next(last) != last) | raw.terminated[last]]
    assert 300 < len(known) < len(indices)
    trained = []
    for one in (buffer, raw):
        rng = np.random.default_rng(0)
        one.sample_indices = lambda count, rng=rng: rng.choice(known, count)
        options = {"estimation_step": 3, "is_double": True}
        if policy_class is MeDQNPolicy:
            options |= {"state_sampler": RealStateSampler(seed=1), "consolidation_coef": 0.5}
        policy = make_policy(policy_class, raw[:1].obs.shape[1:], **options)
        start = copy.deepcopy(policy.state_dict())
        with policy_within_training_step(policy):
            losses = [policy.update(sample_size=16, buffer=one).loss for _ in range(60)]
        assert np.isfinite(losses).all()
        assert any(not torch.equal(start[name], new) for name, new in policy.state_dict().items())
        trained.append((policy, losses))
    (policy, losses), (expected_policy, expected_losses) = trained
    assert losses == expected_losses
    for name, value in expected_policy.state_dict().items():
        assert torch.equal(policy.state_dict()[name], value), name


def test_real_states_come_evenly_from_what_a_cap_leaves_and_nothing_else_is_read():
    class ObservationOnly(CompactVectorReplayBuffer):
        def __getitem__(self, index):
            raise AssertionError("read whole transitions")

        def _gather(self, parts, key):
            raise AssertionError(f"read {key!r}")

    def states(time):
        return step(np.full(50, time), np.full(50, time + 1))

    cap = 2 * smallest_cap(states(0), 9000, 2)
    buffer = ObservationOnly(9000, 2, max_bytes=cap, random_seed=0)
    for time in range(600):
        buffer.add(states(time), buffer_ids=[0])
        if time < 12:
            buffer.add(states(1000 + time), buffer_ids=[1])
    held = buffer.get(buffer.sample_indices(0), "obs")[:, 0]
    assert 12 < len(held) < 600
    draws = copy.deepcopy(buffer).sample_indices(9)
    drawn = RealStateSampler(seed=0).sample(200 * len(held), buffer)[:, 0]
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == sorted(held)
    assert counts.min() > 100
    assert counts.max() < 300
    np.testing.assert_array_equal(buffer.sample_indices(9), draws)


def make_rainbow():
    torch.manual_seed(0)
    noisy = {"linear_layer": NoisyLinear}
    model = Net(
        state_shape=(64,), action_shape=2, hidden_sizes=(16,), softmax=True, num_atoms=5,
        dueling_param=(noisy, noisy),
    )  # fmt: skip
    optim = torch.optim.Adam(model.parameters())
    return RainbowPolicy(
        model=model, optim=optim, action_space=spaces.Discrete(2), num_atoms=5, v_min=-1.0,
        v_max=9.0, estimation_step=3, target_update_freq=7,
    )  # fmt: skip


PRIORITIZED = {
    "DQN": lambda: make_policy(estimation_step=3, is_double=True),
    "Rainbow": make_rainbow,
    "MeDQN(R)": lambda: make_policy(MeDQNPolicy, state_sampler=RealStateSampler(seed=1)),
    "fast MeDQN(R)": lambda: make_policy(FastMeDQNPolicy, state_sampler=RealStateSampler(seed=1)),
}


@pytest.mark.parametrize("algorithm", PRIORITIZED)
@pytest.mark.parametrize("size", [1200, 90], ids=["filling", "wrapping"])
def test_prioritized_training_gives_the_same_parameters_as_with_tianshous_buffer(algorithm, size):
    """From the same generator: numpy's global one explores and samples for both buffers."""
    policies = []
    for buffer_class in (PrioritizedVectorReplayBuffer, CompactPrioritizedVectorReplayBuffer):
        np.random.seed(3)
        policy = PRIORITIZED[algorithm]()
        buffer = buffer_class(size, 3, alpha=0.6, beta=0.4)
        envs = DummyVectorEnv([lambda: Walk(20)] * 3)
        envs.seed(5)
        collector = Collector(policy, envs, buffer, exploration_noise=True)
        collector.reset()
        collector.collect(n_step=60)
        start = copy.deepcopy(policy.model.state_dict())
        with policy_within_training_step(policy):
            for _ in range(30):
                collector.collect(n_step=6)
                policy.update(sample_size=16, buffer=buffer)
        assert any(not torch.equal(start[name], p) for name, p in policy.model.named_parameters())
        policies.append(policy)
    expected, policy = policies
    for name, value in expected.model.state_dict().items():
        assert torch.equal(policy.model.state_dict()[name], value), name
