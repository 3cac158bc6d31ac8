"""CompactVectorReplayBuffer: what it stores, and how many bytes that takes."""

import copy
from itertools import pairwise

import numpy as np
import pytest
from compact_oracle import assert_same, assert_same_transitions, step
from tianshou.data import Batch, VectorReplayBuffer

from medqn_tianshou import CompactVectorReplayBuffer


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
            with pytest.raises(IndexError, match="contains no transition"):
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
