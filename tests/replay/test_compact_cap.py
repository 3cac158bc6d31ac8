"""CompactVectorReplayBuffer: the cap on its bytes, seeds and copies."""

import copy
import gc
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from compact_oracle import Play, assert_same_transitions, smallest_cap, to_add
from hypothesis import given
from hypothesis import strategies as st
from random_play import Game, bits, examples, few_changes, floats, games, masked, noise
from tianshou.data import Batch

from medqn_tianshou import CompactVectorReplayBuffer


def least_bytes(game):
    batch = to_add(game, [Play(game).players[0].step()])
    stacked = game.layout != "frames"
    options = {"stack_num": game.stack_num, "save_only_last_obs": stacked}
    return smallest_cap(batch, game.size, game.envs, **options)


def assert_holds_the_newest(buffer, lists):
    indices = buffer.sample_indices(0)
    counts = np.histogram(indices, buffer.subbuffer_edges)[0]
    newest = [
        entry
        for held, count in zip(lists.held, counts, strict=True)
        for entry in list(held)[len(held) - count :]
    ]
    assert len(newest) == len(buffer) > 0
    assert_same_transitions(buffer[indices], lists.batch(newest))
    for others in (buffer.sample_indices(50), buffer.prev(indices), buffer.next(indices)):
        assert set(others) <= set(indices)


@examples(30)
@given(games(size=3000), st.sampled_from([1.0, 1.1, 1.5, 3.0]))
def test_never_holds_more_than_the_cap_and_what_it_holds_is_exact(game, slack):
    max_bytes = int(slack * least_bytes(game))
    buffer = game.make(max_bytes=max_bytes)
    play = Play(game, buffer, part_size=10**6)
    for step in range(game.steps):
        play.step()
        assert buffer.nbytes <= max_bytes
        assert len(buffer) > 0
        if step % 30 == 0 or step == game.steps - 1:
            assert_holds_the_newest(buffer, play.lists)


@pytest.mark.parametrize("layout", ["frames", "stacks", "leads"])
def test_the_smallest_cap_leaves_whole_stacks(layout):
    """Frames that the next transition of an episode will need must not go with the oldest."""
    game = Game(size=3000, steps=100, stack_num=4, layout=layout, kind=noise, end_chance=0.3)
    buffer = game.make(max_bytes=least_bytes(game))
    play = Play(game, buffer, part_size=10**6)
    for _ in range(game.steps):
        play.step()
        assert_holds_the_newest(buffer, play.lists)


@pytest.mark.parametrize("slack", [3, 10])
@pytest.mark.parametrize("end_chance", [0.02, 1.0])
@pytest.mark.parametrize("kind", [few_changes, noise])
def test_the_cap_is_put_to_use(kind, end_chance, slack):
    """Only the oldest go: the count settles, it does not fall each time that something grows."""
    game = Game(size=10**6, kind=kind, end_chance=end_chance, break_chance=0.0)
    max_bytes = slack * least_bytes(game)
    buffer = game.make(max_bytes=max_bytes)
    play = Play(game, buffer, part_size=10**6)
    while buffer.buffers[0].first == 0:
        play.step()
    counts, used = [], []
    for _ in range(len(buffer) + 300):
        play.step()
        counts.append(len(buffer))
        used.append(buffer.nbytes)
    assert min(counts) > 0.5 * max(counts)
    assert max(used) > 0.5 * max_bytes


@pytest.mark.parametrize("what", ["rew", "info"])
def test_the_cap_holds_when_fields_grow(what):
    """A long ring of one-byte rewards becomes eight times as large at the first 0.1."""
    game = Game(size=10**6)
    buffer = game.make(max_bytes=60_000, keep=("info",))
    transition = Play(game).players[0].step()._replace(terminated=False, truncated=False)
    still = to_add(game, [transition._replace(obs_next=transition.obs, act=0, rew=0.0)])
    while buffer.buffers[0].first == 0:
        buffer.add(still)
    still[what] = np.array([0.1]) if what == "rew" else Batch(score=np.array([0.1]))
    buffer.add(still)
    assert buffer.nbytes <= 60_000
    assert len(buffer) > 100
    newest = buffer[buffer.last_index]
    assert newest.rew == 0.1 if what == "rew" else newest.info.score == 0.1
    assert (buffer[:].act == 0).all()


@pytest.mark.parametrize("max_bytes", [34_444, 38_888, 41_110])
def test_a_ring_that_shrinks_has_room_for_the_transition_that_it_shrinks_for(max_bytes):
    """Frames that compress well are followed by noise: the ring is too long for so few."""
    rng = np.random.default_rng((max_bytes - 30_000) // 1111)
    buffer = CompactVectorReplayBuffer(10**5, 1, max_bytes=max_bytes, random_seed=0)
    for step in range(3000):
        obs, obs_next = rng.integers(0, 256, (2, 1, 8, 8), np.uint8)
        act, rew, ends = rng.integers(0, 5, 1), rng.random(1), rng.random(1) < 0.1
        if step // 400 % 2 == 0:
            obs[:] = obs_next[:] = 0
        fields = {"obs": obs, "obs_next": obs_next, "act": act, "rew": rew, "terminated": ends}
        buffer.add(Batch(**fields, truncated=np.zeros(1, bool)))
        assert len(np.unique(buffer.sample_indices(0))) == len(buffer)


def test_an_environment_without_transitions_has_nothing_to_evict():
    game = Game(envs=2, size=1000)
    buffer = game.make()
    for _ in range(100):
        buffer.add(to_add(game, [Play(game).players[0].step()]), buffer_ids=[0])
    buffer.lower_max_bytes(1)
    assert 0 < len(buffer) < 100


def reachable_bytes(root):
    """Add up all that an object keeps alive, but for classes and other code."""
    seen, total, todo = set(), 0, [root]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, type | np.dtype | np.random.RandomState):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        todo += gc.get_referents(item)
        if isinstance(item, np.ndarray) and item.base is not None:
            todo.append(item.base)
    return total


@pytest.mark.parametrize(
    ("end_chance", "break_chance"), [(0.01, 0.0), (1.0, 0.0), (0.01, 1.0)], ids=str
)
@pytest.mark.parametrize("kind", [few_changes, noise, bits, masked])
def test_nbytes_agrees_with_what_python_holds(kind, end_chance, break_chance):
    game = Game(
        envs=2, size=2000, steps=1000, kind=kind, end_chance=end_chance, break_chance=break_chance
    )
    buffer = game.make()
    Play(game, buffer).run()
    held = reachable_bytes(buffer.buffers)
    assert buffer.nbytes == pytest.approx(held, rel=0.05, abs=2 * 10_000)


def played(**options):
    game = Game(envs=2, size=60, steps=90, kind=floats, stack_num=2)
    buffer = game.make(**options)
    return buffer, Play(game, buffer)


def test_draws_follow_the_seed_or_numpys_global_one():
    def draws(seed=None, global_seed=0):
        np.random.seed(global_seed)
        buffer, play = played(random_seed=seed)
        play.run()
        return buffer.sample_indices(20).tolist()

    assert draws(seed=1) == draws(seed=1, global_seed=2) != draws(seed=2)
    assert draws(global_seed=1) == draws(global_seed=1) != draws(global_seed=2)


def pickled(buffer):
    return pickle.loads(pickle.dumps(buffer))  # noqa: S301


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_a_copy_holds_and_draws_the_same_and_goes_its_own_way(duplicate):
    buffer, play = played(random_seed=3)
    play.run()
    twin = duplicate(buffer)
    assert_same_transitions(twin[:], buffer[:])
    assert (twin.nbytes, len(twin)) == (buffer.nbytes, len(buffer))
    for _ in range(3):
        np.testing.assert_array_equal(twin.sample_indices(9), buffer.sample_indices(9))
    before = buffer[:]
    Play(replace(play.game, seed=1), twin).run()
    assert_same_transitions(buffer[:], before)
    with pytest.raises(AssertionError):
        assert_same_transitions(twin[:], before)
