"""CompactVectorReplayBuffer: what it keeps, what it takes, and that Tianshou works with it."""

import copy
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch
from compact_oracle import (
    Game,
    Play,
    assert_same,
    assert_same_transitions,
    bits,
    smallest_cap,
)
from gymnasium import spaces
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.policy import DQNPolicy
from tianshou.utils.torch_utils import policy_within_training_step

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    LeanCollector,
    MeDQNPolicy,
    MLPQNetwork,
    RealStateSampler,
)

# -- values at the edges ---------------------------------------------------------------------------


def step(obs, obs_next, **fields):
    """A batch of one transition."""
    defaults = {"act": 0, "rew": 0.0, "terminated": False, "truncated": False}
    arrays = {key: np.array([value]) for key, value in (defaults | fields).items()}
    return Batch(obs=np.array([obs]), obs_next=np.array([obs_next]), **arrays)


def filled(values, key, **options):
    """A buffer of one episode in which a field took some values."""
    buffer = CompactVectorReplayBuffer(max(len(values), 2), 1, **options)
    for time, value in enumerate(values):
        buffer.add(step(time, time + 1, **{key: value}))
    return buffer


@pytest.mark.parametrize(
    ("key", "values", "nbytes"),
    [
        ("rew", [0.0, 1.0, -1.0, 100.0], 1),
        ("rew", [1.0, 0.5, -2.25], 2),
        ("rew", [1.0, 0.5, float(np.float32(0.1))], 4),
        ("rew", [1.0, 2.0**40], 4),
        ("rew", [1.0, 0.1], 8),
        ("rew", [1.0, 1e300, 1.0], 8),
        ("rew", [0.0, 1.0, -0.0], 2),
        ("rew", [7.0, np.nan, 7.0, 127.0, 128.0, np.inf], 2),
        ("act", [0, 5, 255], 1),
        ("act", [0, 255, -1], 2),
        ("act", [5, 300], 2),
        ("act", [5, 2**40, -1], 8),
        ("act", [2**63 - 1, -(2**63), 0], 8),
    ],
    ids=str,
)
def test_values_take_the_bytes_they_need_and_keep_every_bit(key, values, nbytes):
    for length in range(1, len(values) + 1):
        buffer = filled(values[:length], key)
        assert_same(buffer[:][key], np.array(values[:length]))
    assert buffer.buffers[0].columns[key].values.itemsize == nbytes
    assert buffer.buffers[0].columns["flags"].values.itemsize == 1


def test_vectors_of_actions_and_rewards_are_kept_as_they_come():
    rng = np.random.default_rng(0)
    actions, rewards = rng.normal(size=(2, 9, 3)).astype(np.float32)
    buffer = CompactVectorReplayBuffer(9, 1)
    for time in range(9):
        transition = step(time, time + 1, act=actions[time], rew=rewards[time], truncated=time == 8)
        _, returned, length, _ = buffer.add(transition)
    assert_same(buffer[:].act, actions)
    assert_same(buffer[:].rew, rewards.astype(float))
    np.testing.assert_allclose(returned, rewards.astype(float).sum(axis=0)[None])
    assert length == [9]


def test_info_and_policy_are_kept_only_on_request():
    info = {"lives": np.array([3, 2, 1]), "deep": {"score": np.array([0.1, 7.0, 1e9])}}
    policy = {"value": np.array([[0.5, 1.5]] * 3, np.float32)}
    steps = [step(time, time + 1) for time in range(3)]
    for time, one in enumerate(steps):
        one.info, one.policy = Batch(info)[[time]], Batch(policy)[[time]]
    without, both = (
        CompactVectorReplayBuffer(5, 1, keep=keep) for keep in ((), ("info", "policy"))
    )
    for one in steps:
        without.add(one)
        both.add(one)
    assert_same(both[:].info, Batch(info))
    assert_same(both[:].policy, Batch(policy))
    assert_same(both.get([2, 0], "info").lives, np.array([1, 3]))
    assert not without[:].info.get_keys()
    assert not without[:].policy.get_keys()
    assert not hasattr(without, "info")
    assert without.get([0], "info", "nothing") == "nothing"
    with pytest.raises(KeyError):
        without.get([0], "info")
    assert without.nbytes < both.nbytes


def test_an_info_may_come_late_stay_away_and_have_any_name():
    buffer = CompactVectorReplayBuffer(8, 2, keep=("info",))
    infos = [{}, {"a.b": 3.5}, {"a.b": 0.25, "new": 7}, {}]
    for time, info in enumerate(infos):
        one = step(time, time + 1)
        one.info = Batch({key: np.array([value]) for key, value in info.items()})
        buffer.add(one, buffer_ids=[0])
    held = buffer[:].info
    assert set(held.get_keys()) == {"a.b", "new"}
    assert held["a.b"].tolist() == [0, 3.5, 0.25, 0]
    assert held["new"].tolist() == [0, 0, 7, 0]


def test_an_episode_that_starts_where_another_broke_off_keeps_its_own_stack():
    """A collector was reset, and the new episode happens to start with the newest frame."""
    buffer = CompactVectorReplayBuffer(9, 1, stack_num=3, save_only_last_obs=True)
    stacks = [[1, 1, 1], [1, 1, 2], [1, 2, 3]]
    for obs, obs_next in pairwise(stacks):
        buffer.add(step(obs, obs_next))
    buffer.add(step([3, 3, 3], [3, 3, 4]))
    assert buffer[:].obs.tolist() == [*stacks[:2], [3, 3, 3]]
    assert buffer[:].obs_next.tolist() == [*stacks[1:], [3, 3, 4]]
    assert buffer.next(1) == 1
    assert buffer.unfinished_index().tolist() == [1, 2]


def test_a_buffer_of_one_transition_forgets_where_the_one_before_broke_off():
    buffer = CompactVectorReplayBuffer(1, 1)
    buffer.add(step(0, 1))
    buffer.add(step(5, 6))
    assert buffer.unfinished_index().tolist() == [0]
    assert (buffer[:].obs, buffer[:].obs_next) == (5, 6)


def test_sample_avail_hides_transitions_from_draws_only():
    buffer = CompactVectorReplayBuffer(9, 1, stack_num=2, sample_avail=True)
    for time in range(6):
        buffer.add(step(time, time + 1, rew=1.0 + time, truncated=time % 2 == 1))
    assert buffer.sample_indices(0).tolist() == [1, 3, 5]
    assert buffer.rew.tolist() == [1, 2, 3, 4, 5, 6, 0, 0, 0]
    assert buffer.done.tolist() == [False, True] * 3 + [False] * 3
    assert buffer[1:4].rew.tolist() == [2, 3, 4]


def test_indices_may_have_any_shape():
    buffer = filled([10, 11, 12, 13, 14], "act")
    grid = np.array([[4, 0], [2, 2]])
    assert buffer[grid].act.tolist() == [[14, 10], [12, 12]]
    assert buffer[grid].obs_next.tolist() == [[5, 1], [3, 3]]
    assert buffer.next(grid).tolist() == [[4, 1], [3, 3]]
    assert buffer.get(grid, "act", stack_num=2).tolist() == [[[13, 14], [10, 10]], [[11, 12]] * 2]
    assert buffer[[]].obs.shape == (0,)
    assert buffer[[True, False, True, False, False]].act.tolist() == [10, 12]
    assert buffer[-1].act == 14
    assert (buffer.prev(-1), buffer.next(-3)) == (3, 3)
    assert buffer[buffer.get_buffer_indices(1, 4)].act.tolist() == [11, 12, 13]


def test_an_index_that_holds_nothing_is_an_error():
    buffer = CompactVectorReplayBuffer(10, 2)
    buffer.add(step(0, 1), buffer_ids=[1])
    for index in (0, 6, [5, 6]):
        for read in (buffer.__getitem__, buffer.next, lambda i: buffer.get(i, "obs")):
            with pytest.raises(IndexError, match="holds no transition"):
                read(index)
    assert buffer[5].obs == 0


def test_mistakes_are_named():
    for wrong in ({"total_size": 0}, {"buffer_num": 0}, {"stack_num": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=0"):
            CompactVectorReplayBuffer(**{"total_size": 9, "buffer_num": 1} | wrong)
    with pytest.raises(ValueError, match=r"keep=.*obs"):
        CompactVectorReplayBuffer(9, 1, keep=("obs",))
    incomplete = step(0, 1)
    incomplete.pop("obs_next")
    with pytest.raises(ValueError, match="obs_next"):
        CompactVectorReplayBuffer(9, 1).add(incomplete)
    with pytest.raises(ValueError, match="empty"):
        CompactVectorReplayBuffer(9, 1).sample_indices(4)
    with pytest.raises(TypeError, match="dtype object"):
        CompactVectorReplayBuffer(9, 1).add(step(object(), object()))
    with pytest.raises(ValueError, match=r"2 environments.*one of 1"):
        CompactVectorReplayBuffer(9, 1).update(VectorReplayBuffer(10, 2))
    with pytest.raises(ValueError, match=r"max_bytes=1000 .*at least"):
        CompactVectorReplayBuffer(9, 1, max_bytes=1000).add(step(*np.zeros((2, 84, 84), np.uint8)))


def test_what_was_handed_over_is_neither_changed_nor_shared():
    frames = np.random.default_rng(0).integers(0, 9, (2, 3, 3), np.uint8)
    batch = step(*frames, rew=0.5)
    before = copy.deepcopy(batch)
    buffer = CompactVectorReplayBuffer(5, 1)
    buffer.add(batch)
    assert_same(batch, before)
    batch.obs[:], batch.obs_next[:], batch.rew[:] = 77, 77, 77
    buffer[0].obs[:] = 88
    assert_same(buffer[:].obs, before.obs)
    assert_same(buffer[:].obs_next, before.obs_next)
    assert_same(buffer[:].rew, before.rew)


@pytest.mark.parametrize(
    ("dtype", "wider"),
    [(np.uint8, np.int64), (np.float32, np.float64), (np.bool_, np.uint8)],
    ids=str,
)
def test_observations_of_a_wider_dtype_are_taken_as_tianshou_takes_them(dtype, wider):
    rows = np.random.default_rng(0).integers(0, 256, (100, 6)).astype(dtype)
    buffers = CompactVectorReplayBuffer(200, 1), VectorReplayBuffer(200, 1)
    for time in range(99):
        given = dtype if time < 3 else wider
        for buffer in buffers:
            buffer.add(step(*rows[time : time + 2].astype(given), truncated=time == 50))
    assert_same_transitions(buffers[0][:], buffers[1][:])
    assert len(buffers[0].unfinished_index()) == 1


# -- memory ----------------------------------------------------------------------------------------


def test_a_sprite_on_a_background_takes_few_bytes_however_high_the_stack():
    rng = np.random.default_rng(0)
    background = np.repeat(rng.integers(0, 256, (12, 7), np.uint8), 7, axis=0).repeat(12, axis=1)
    count, stack = 3000, 4
    frames = np.tile(background, (count + 1, 1, 1))
    row, column = 40, 40
    for frame in frames:
        row, column = np.clip(np.array([row, column]) + rng.integers(-2, 3, 2), 0, 80)
        frame[row : row + 4, column : column + 4] = 200
    times = np.maximum(np.arange(count + 1)[:, None] + np.arange(1 - stack, 1), 0)
    buffer = CompactVectorReplayBuffer(count, 1, stack_num=stack, save_only_last_obs=True)
    for time in range(count):
        buffer.add(step(frames[times[time]], frames[times[time + 1]], act=time % 6, rew=time % 2))
    assert buffer.nbytes / count < 100
    chosen = rng.integers(count, size=200)
    batch = buffer[chosen]
    assert_same(batch.obs, frames[times[chosen]])
    assert_same(batch.obs_next, frames[times[chosen + 1]])


def test_a_cell_of_minatar_takes_a_bit():
    rng = np.random.default_rng(0)
    states = rng.random((5001, 10, 10, 10)) < 0.1
    buffer = CompactVectorReplayBuffer(5000, 1)
    for time in range(5000):
        buffer.add(step(*states[time : time + 2], act=time % 6, rew=float(time % 2)))
    assert 125 <= buffer.nbytes / 5000 <= 140
    assert_same(buffer[:].obs_next, states[1:])


def test_it_grows_as_it_fills():
    buffer = CompactVectorReplayBuffer(10**9, 3, stack_num=4)
    buffer.add(Batch.cat([step(*np.zeros((2, 84, 84), np.uint8))] * 3))
    assert buffer.nbytes < 100_000


# -- Tianshou's machinery --------------------------------------------------------------------------


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
            losses = [policy.update(sample_size=16, buffer=one).loss for _ in range(200)]
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
