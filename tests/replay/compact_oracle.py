"""A replay buffer that is a plain list of transitions, to hold compact replay to."""

import re
from collections import deque
from itertools import pairwise
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from random_play import Player, Transition, same_frame
from tianshou.data import Batch

import medqn_tianshou.replay.codecs as codecs
import medqn_tianshou.replay.storage as storage
from medqn_tianshou import CompactVectorReplayBuffer

KEYS = ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next")


class Entry(NamedTuple):
    index: int
    transition: Transition
    goes_on: bool
    """Whether it begins where the transition before it ended."""


class TransitionLists:
    """The oracle: the newest transitions of each environment, as they came."""

    def __init__(self, game, part_size=None):
        self.game = game
        self.part_size = game.part_size if part_size is None else part_size
        self.returns, self.lengths = [0.0] * game.envs, [0] * game.envs
        self.reset(keep_statistics=True)

    def reset(self, keep_statistics=False):
        self.held = [deque(maxlen=self.part_size) for _ in range(self.game.envs)]
        self.added = [0] * self.game.envs
        self.starts = [0] * self.game.envs
        if not keep_statistics:
            self.returns, self.lengths = [0.0] * self.game.envs, [0] * self.game.envs

    def add(self, env, transition):
        """Return the index, and return, length and first index of the episode, as Tianshou does."""
        held, offset = self.held[env], env * self.part_size
        index = offset + self.added[env] % self.part_size
        newest = held[-1].transition if held else None
        goes_on = (
            newest is not None
            and not newest.done
            and all(map(same_frame, newest.obs_next, transition.obs))
        )
        held.append(Entry(index, transition, goes_on))
        self.added[env] += 1
        self.returns[env] += transition.rew
        self.lengths[env] += 1
        start = offset + self.starts[env]
        if not transition.done:
            return index, 0.0, 0, start
        result = index, self.returns[env], self.lengths[env], start
        self.returns[env], self.lengths[env] = 0.0, 0
        self.starts[env] = self.added[env] % self.part_size
        return result

    def entries(self):
        """All that is held: environment by environment, oldest first."""
        return [entry for held in self.held for entry in held]

    def neighbours(self):
        """Pairs of entries of which the second goes on from the first."""
        pairs = [pair for held in self.held for pair in pairwise(held)]
        return [(one, other) for one, other in pairs if other.goes_on]

    def unfinished(self):
        ended_by_successor = {one.index for one, _ in self.neighbours()}
        return [
            entry.index
            for entry in self.entries()
            if not entry.transition.done and entry.index not in ended_by_successor
        ]

    def last_index(self):
        return [
            held[-1].index if held else env * self.part_size for env, held in enumerate(self.held)
        ]

    def with_predecessors(self, count, or_from_the_start=False):
        """Indices that have so many predecessors of their episode held (or all there ever were)."""
        depth = {}
        for entry in self.entries():
            depth[entry.index] = 0 if entry.goes_on or not or_from_the_start else count
        for one, other in self.neighbours():
            depth[other.index] = depth[one.index] + 1
        return [index for index, value in depth.items() if value >= count]

    def batch(self, entries):
        """What a buffer should return for some entries."""
        transitions = [entry.transition for entry in entries]
        fields = {
            "act": np.array([t.act for t in transitions], np.int64),
            "rew": np.array([t.rew for t in transitions], float),
            "terminated": np.array([t.terminated for t in transitions], bool),
            "truncated": np.array([t.truncated for t in transitions], bool),
            "done": np.array([t.done for t in transitions], bool),
        }
        for key in ("obs", "obs_next"):
            stacks = join_stacks([getattr(t, key) for t in transitions])
            fields[key] = stacks[:, 0] if self.game.stack_num == 1 else stacks
        return Batch(**fields)


def join_stacks(stacks):
    """Stacks as one array (or a Batch of arrays) of shape (stacks, frames, ...)."""
    joined = {
        name: np.array([[frame[name] for frame in stack] for stack in stacks])
        for name in stacks[0][0]
    }
    return joined[""] if "" in joined else Batch(joined)


def to_add(game, transitions):
    """A batch for ``buffer.add``, without the ``done`` that buffers work out."""
    obs, obs_next = (
        join_stacks([getattr(t, key) for t in transitions]) for key in ("obs", "obs_next")
    )
    return Batch(
        obs=obs[:, -1] if game.layout == "frames" else obs,
        obs_next=obs_next[:, -1] if game.layout == "frames" else obs_next,
        act=np.array([t.act for t in transitions], np.int64),
        rew=np.array([t.rew for t in transitions], float),
        terminated=np.array([t.terminated for t in transitions], bool),
        truncated=np.array([t.truncated for t in transitions], bool),
    )


class Play:
    """A game in progress: a list of transitions, and the buffers that receive the same."""

    def __init__(self, game, *buffers, part_size=None):
        self.game, self.buffers = game, buffers
        self.rng = np.random.default_rng(game.seed)
        self.players = [Player(game, self.rng) for _ in range(game.envs)]
        self.lists = TransitionLists(game, part_size)

    def step(self):
        """Step some of the environments; return what was and what should have been reported."""
        chosen = np.flatnonzero(self.rng.random(self.game.envs) < 0.7)
        chosen = self.rng.permutation(chosen if len(chosen) else np.arange(self.game.envs))
        transitions = [self.players[env].step() for env in chosen]
        batch = to_add(self.game, transitions)
        with (
            mock.patch.object(storage, "FRAMES_PER_BLOCK", self.game.frames_per_block),
            mock.patch.object(codecs, "SPLIT_NBYTES", self.game.split_nbytes),
        ):
            reported = [buffer.add(batch, buffer_ids=chosen) for buffer in self.buffers]
        expected = [self.lists.add(e, t) for e, t in zip(chosen, transitions, strict=True)]
        return reported, tuple(map(list, zip(*expected, strict=True)))

    def run(self):
        for _ in range(self.game.steps):
            self.step()
        return self.lists

    def reset(self, keep_statistics):
        for buffer in self.buffers:
            buffer.reset(keep_statistics=keep_statistics)
        self.lists.reset(keep_statistics)
        for player in self.players:
            player.forget_history()


def step(obs, obs_next, **fields):
    """A batch of one transition."""
    defaults = {"act": 0, "rew": 0.0, "terminated": False, "truncated": False}
    arrays = {key: np.array([value]) for key, value in (defaults | fields).items()}
    return Batch(obs=np.array([obs]), obs_next=np.array([obs_next]), **arrays)


def smallest_cap(batch, *args, **options):
    """The fewest bytes with which a compact buffer says it can work."""
    buffer = CompactVectorReplayBuffer(*args, **options, max_bytes=1)
    with pytest.raises(ValueError, match="max_bytes=1 ") as error:
        buffer.add(batch, buffer_ids=[0])
    return int(re.search(r"at least (\d+)", str(error.value)).group(1))


def assert_same(actual, expected, what=""):
    """Compare arrays, or Batches of them, bit by bit, with shape and dtype."""
    if isinstance(expected, Batch):
        assert set(actual.get_keys()) == set(expected.get_keys()), what
        for key in expected.get_keys():
            assert_same(actual[key], expected[key], f"{what}.{key}")
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), what
    if actual.tobytes() != expected.tobytes():
        np.testing.assert_array_equal(actual, expected, what)
        raise AssertionError(f"{what}: the same values, but not the same bits")


def assert_same_transitions(actual, expected):
    for key in KEYS:
        assert_same(actual[key], expected[key], key)
