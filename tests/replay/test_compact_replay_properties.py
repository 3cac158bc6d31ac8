"""CompactVectorReplayBuffer under random play: against a list of transitions, and Tianshou's."""

import numpy as np
import pytest
from compact_oracle import KEYS, Play, assert_same, assert_same_transitions
from hypothesis import given
from hypothesis import strategies as st
from random_play import Game, examples, games, noise
from tianshou.data import ReplayBuffer, VectorReplayBuffer

from medqn_tianshou import CompactVectorReplayBuffer
from medqn_tianshou.replay.tianshou_buffers import seed_replay_buffer

pytestmark = pytest.mark.slow

# -- against a list of transitions -----------------------------------------------------------------


@examples(50)
@given(games())
def test_reads_what_was_added(game):
    buffer = game.make()
    entries = Play(game, buffer).run().entries()
    lists = Play(game).lists  # only to build batches
    indices = [entry.index for entry in entries]
    order = np.random.default_rng(0).integers(len(entries), size=2 * len(entries))
    shuffled, expected = np.array(indices)[order], lists.batch([entries[i] for i in order])
    assert_same_transitions(buffer[shuffled], expected)
    assert_same_transitions(buffer[shuffled.tolist()], expected)
    assert_same_transitions(buffer[:], lists.batch(entries))
    for key in ("obs", "obs_next"):
        assert_same(buffer.get(shuffled, key), expected[key], key)
    requests = [(shuffled[:3], "obs_next"), (shuffled, "obs")]
    obs_next, obs = buffer.get_observations(requests)
    assert_same(obs_next, expected[:3].obs_next)
    assert_same(obs, expected.obs)
    ascending = sorted(entries)[1:7:2]
    if ascending:
        assert_same_transitions(buffer[1:7:2], lists.batch(ascending))


@examples(30)
@given(games())
def test_a_single_index_reads_a_single_transition(game):
    buffer = game.make()
    lists = Play(game, buffer).run()
    for entry in lists.entries()[:: len(lists.entries()) // 5 + 1]:
        expected = lists.batch([entry])[0]
        assert_same_transitions(buffer[entry.index], expected)
        assert_same(buffer.get(entry.index, "obs"), expected.obs)
        assert_same(buffer.get(entry.index, "act", stack_num=1), expected.act)


@examples(30)
@given(games())
def test_reports_what_tianshou_documents_after_every_add(game):
    buffer = game.make()
    play = Play(game, buffer)
    for _ in range(game.steps):
        (reported,), expected = play.step()
        for value, wanted in zip(reported, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)
        assert len(buffer) == len(play.lists.entries())
        np.testing.assert_array_equal(buffer.last_index, play.lists.last_index())


@examples(30)
@given(games())
def test_finds_neighbours_and_ends(game):
    buffer = game.make()
    lists = Play(game, buffer).run()
    indices = np.array([entry.index for entry in lists.entries()])
    pairs = [(one.index, other.index) for one, other in lists.neighbours()]
    following, preceding = dict(pairs), {other: one for one, other in pairs}
    assert_same(buffer.next(indices), np.array([following.get(i, i) for i in indices]))
    assert_same(buffer.prev(indices), np.array([preceding.get(i, i) for i in indices]))
    assert buffer.next(int(indices[0])) == following.get(indices[0], indices[0])
    assert buffer.prev(int(indices[-1])) == preceding.get(indices[-1], indices[-1])
    unfinished = buffer.unfinished_index()
    np.testing.assert_array_equal(unfinished, lists.unfinished())
    assert unfinished.dtype.kind == "i"


@examples(30)
@given(games(), st.booleans())
def test_draws_only_what_is_held_and_all_of_it(game, sample_avail):
    buffer = game.make(sample_avail=sample_avail)
    lists = Play(game, buffer).run()
    wanted = [entry.index for entry in lists.entries()]
    if sample_avail and game.stack_num > 1:
        wanted = lists.with_predecessors(game.stack_num - 1)
        assert set(buffer.sample_indices(None)) <= set(wanted)
    else:
        np.testing.assert_array_equal(buffer.sample_indices(None), wanted)
    np.testing.assert_array_equal(buffer.sample_indices(0), wanted)
    assert len(buffer.sample_indices(-1)) == 0
    if wanted:
        drawn = buffer.sample_indices(20 * len(wanted))
        assert set(drawn) <= set(wanted)
        assert len(drawn) == 20 * len(wanted)
        assert len(set(drawn)) > 0.9 * len(wanted)
        batch, indices = buffer.sample(5)
        assert_same_transitions(batch, buffer[indices])


@examples(30)
@given(games(end_chance=0.1), st.booleans())
def test_a_reset_buffer_is_as_good_as_new(game, keep_statistics):
    buffer = game.make()
    play = Play(game, buffer)
    play.run()
    play.reset(keep_statistics)
    assert len(buffer) == len(buffer.unfinished_index()) == 0
    assert len(buffer.sample_indices(0)) == 0
    np.testing.assert_array_equal(buffer.last_index, buffer.subbuffer_edges[:-1])
    for _ in range(20):
        (reported,), expected = play.step()
        for value, wanted in zip(reported, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)
    assert_same_transitions(buffer[:], play.lists.batch(play.lists.entries()))


@examples(30)
@given(games(kind=noise), st.integers(1, 12))
def test_stacks_of_another_height_never_leave_the_episode(game, height):
    """Higher ones than the buffer's own may reach back to frames that it has not kept."""
    buffer = game.make()
    play = Play(game, buffer, part_size=10**6)
    play.run()
    for env, part in enumerate(buffer.buffers):
        entries = list(play.lists.held[env])
        for time in range(len(entries) - len(part), len(entries), 3):
            start = max(t for t in range(time + 1) if not entries[t].goes_on)
            lead = entries[start].transition.obs[:-1]
            frames = lead + [entries[t].transition.obs[-1] for t in range(start, time + 1)]
            index = env * game.part_size + time % game.part_size
            stack = buffer.get(np.array([index]), "obs", stack_num=height)[0]
            stack = stack[None] if height == 1 else stack
            sure = min(height, game.stack_num)
            assert_same(stack[-sure:], np.array([frame[""] for frame in frames[-sure:]]))
            known = {frame[""].tobytes() for frame in frames}
            assert all(frame.tobytes() in known for frame in stack)


# -- against Tianshou's own buffer -----------------------------------------------------------------


def filled_pair(game, seed=5, raw_options=None, **options):
    buffer = game.make(**options)
    raw = game.make(VectorReplayBuffer, ignore_obs_next=True, **(raw_options or {}), **options)
    for one in (buffer, raw):
        seed_replay_buffer(one, seed)
    return buffer, raw, Play(game, buffer, raw).run()


@examples(40)
@given(games(break_chance=0.0).filter(lambda game: game.layout != "leads"))
def test_reads_as_tianshou_does_where_tianshou_is_right(game):
    buffer, raw, lists = filled_pair(game)
    right = np.array(lists.with_predecessors(game.stack_num - 1, or_from_the_start=True), int)
    fields = KEYS[:-1]
    for key in fields:
        assert_same(buffer.get(right, key), raw.get(right, key), key)
        assert_same(buffer[right][key], raw[right][key], key)
    followed = right[np.isin(raw.next(right), right) & (raw.next(right) != right)]
    assert_same(buffer[followed].obs_next, raw[followed].obs_next)
    indices = raw.sample_indices(0)
    np.testing.assert_array_equal(buffer.sample_indices(0), indices)
    for name in ("prev", "next"):
        assert_same(getattr(buffer, name)(indices), getattr(raw, name)(indices), name)
    np.testing.assert_array_equal(buffer.unfinished_index(), raw.unfinished_index())
    np.testing.assert_array_equal(buffer.last_index, raw.last_index)
    assert (len(buffer), buffer.maxsize) == (len(raw), raw.maxsize)
    for key in ("act", "rew", "done", "terminated", "truncated"):
        assert_same(getattr(buffer, key)[indices], getattr(raw, key)[indices], key)


@examples(20)
@given(games(stack_num=1, layout="frames", break_chance=0.0))
def test_reads_as_a_tianshou_buffer_that_stores_all_successors(game):
    buffer, raw = game.make(), game.make(VectorReplayBuffer)
    Play(game, buffer, raw).run()
    assert_same_transitions(buffer[:], raw[:])


@examples(30)
@given(games(break_chance=0.0), st.booleans(), st.integers(1, 70))
def test_draws_as_tianshou_does_from_the_same_seed(game, sample_avail, count):
    buffer, raw, _ = filled_pair(game, sample_avail=sample_avail)
    if len(raw.sample_indices(0)):
        for _ in range(3):
            np.testing.assert_array_equal(buffer.sample_indices(count), raw.sample_indices(count))


@examples(25)
@given(games(break_chance=0.0).filter(lambda game: game.layout != "leads"), st.booleans())
def test_update_takes_over_another_buffer(game, sample_avail):
    buffer = game.make()
    raw = game.make(VectorReplayBuffer, ignore_obs_next=True, sample_avail=sample_avail)
    lists = Play(game, raw).run()
    before = raw.stack_num, raw._sample_avail
    added = buffer.update(raw)
    assert (raw.stack_num, raw._sample_avail) == before
    assert len(buffer) == len(added) == len(raw)
    right = np.isin(
        [entry.index for entry in lists.entries()],
        lists.with_predecessors(game.stack_num - 1, or_from_the_start=True),
    )
    expected = lists.batch(lists.entries())
    actual = buffer[added]
    for key in KEYS[1:-1]:
        assert_same(actual[key], expected[key], key)
    assert_same(actual.obs[right], expected.obs[right])


def test_a_plain_replay_buffer_can_be_taken_over_too():
    raw = ReplayBuffer(20)
    game = Game(size=30, steps=25, break_chance=0.0)
    Play(game, raw).run()
    buffer = CompactVectorReplayBuffer(30, 1)
    assert_same(buffer[buffer.update(raw)].obs, raw[:].obs)
