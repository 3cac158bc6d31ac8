"""Random play, and a replay buffer that is a plain list of transitions, to hold compact replay to.

A frame is a dict of arrays: one named ``""``, or those of a Batch observation by their keys. A
stack is a list of frames, oldest first.
"""

import re
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import strategies as st
from tianshou.data import Batch

import medqn_tianshou.replay.codecs as codecs
import medqn_tianshou.replay.storage as storage
from medqn_tianshou import CompactVectorReplayBuffer

KEYS = ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next")
WILD_ACTIONS = (7, 255, -1, 300, 2**40)
WILD_REWARDS = (-1, 0.5, 0.1, 1e300, np.nan)
SPECIAL_FLOATS = (0.0, -0.0, np.nan, np.inf, 1e-45)


def few_changes(rng, before):
    """Start from black and change a cell at most, so that different episodes often look alike."""
    pixels = np.zeros((4, 5), np.uint8) if before is None else before[""].copy()
    if rng.random() < 0.7:
        pixels.flat[rng.integers(pixels.size)] = rng.integers(1, 4)
    return {"": pixels}


def wide(rng, before):
    """Change cells that lie far apart, also just as far as fits into a byte."""
    pixels = np.zeros(1000, np.uint8) if before is None else before[""].copy()
    pixels[rng.choice([0, 254, 255, 256, 510, 511, 999], rng.integers(4))] = rng.integers(256)
    return {"": pixels}


def noise(rng, before):
    return {"": rng.integers(0, 256, (7, 43), np.uint8)}


def alternating(rng, before):
    """Follow noise by stretches of one colour: from incompressible to almost free and back."""
    if rng.random() < 0.1 or before is None or len(np.unique(before[""])) > 1:
        return noise(rng, before) if rng.random() < 0.9 else {"": np.full((7, 43), 9, np.uint8)}
    return before


def bits(rng, before):
    return {"": rng.random((2, 3)) < 0.2}


def floats(rng, before):
    return {"": np.append(rng.choice(SPECIAL_FLOATS), rng.normal(size=2)).astype(np.float32)}


def number(rng, before):
    return {"": np.asarray(rng.integers(3))}


def masked(rng, before):
    pixels = few_changes(rng, None if before is None else {"": before["obs"]})[""]
    return {"obs": pixels, "mask": rng.random(2) < 0.5}


KINDS = (few_changes, wide, noise, alternating, bits, floats, number, masked)
LAYOUTS = ("frames", "stacks", "leads")


@dataclass(frozen=True)
class Game:
    """How random play goes, and the buffer it goes to."""

    envs: int = 1
    size: int = 50
    steps: int = 60
    stack_num: int = 1
    layout: str = "frames"
    """``frames`` hands over single frames, ``stacks`` stacks of which the first of an episode
    repeats one frame, ``leads`` stacks of which the first does not."""
    kind: object = few_changes
    end_chance: float = 0.1
    break_chance: float = 0.03
    """Of an episode that ends without a flag, as when a collector is reset."""
    wild_chance: float = 0.05
    """Of an action or a reward that needs more than a byte."""
    frames_per_block: int = 32
    split_nbytes: int = 32_768
    seed: int = 0

    @property
    def part_size(self):
        return -(-self.size // self.envs)

    def make(self, buffer_class=CompactVectorReplayBuffer, **options):
        return buffer_class(
            self.size,
            self.envs,
            stack_num=self.stack_num,
            save_only_last_obs=self.layout != "frames",
            **options,
        )


@st.composite
def games(draw, **fixed):
    """Draw games. All but the length hangs on one number, or most would be small and alike."""
    steps, seed = draw(st.integers(1, 150)), draw(st.integers(0, 2**32 - 1))
    choose = Random(seed)
    options = {
        "envs": choose.randint(1, 4),
        "size": choose.choice([choose.randint(1, 40), choose.randint(41, 400)]),
        "stack_num": choose.randint(1, 4),
        "layout": choose.choice(LAYOUTS),
        "kind": choose.choice(KINDS),
        "end_chance": choose.choice([0.0, 0.05, 0.3, 1.0]),
        "break_chance": choose.choice([0.0, 0.05, 0.5]),
        "wild_chance": choose.choice([0.0, 0.05]),
        "frames_per_block": choose.choice([1, 2, 5, 32]),
        "split_nbytes": choose.choice([50, 32_768]),
    }
    return Game(steps=steps, seed=seed, **(options | fixed))


class Transition(NamedTuple):
    obs: list
    act: int
    rew: float
    terminated: bool
    truncated: bool
    obs_next: list

    @property
    def done(self):
        return self.terminated or self.truncated


class Player:
    """Plays one environment at random."""

    def __init__(self, game, rng):
        self.game, self.rng = game, rng
        self.start()

    def start(self, ended=True):
        """Start an episode; if the last one has ended without a flag, it may look like its next."""
        frame = self.game.kind(self.rng, None)
        if not ended and self.game.layout == "frames" and same_frame(frame, self.stack[-1]):
            return
        self.stack = [frame] * self.game.stack_num
        if self.game.layout == "leads":
            for place in range(self.game.stack_num - 1):
                self.stack[place] = self.game.kind(self.rng, frame)

    def forget_history(self):
        """Tell that the buffer has lost the frames so far, and cannot stack them any more."""
        if self.game.layout == "frames":
            self.stack = [self.stack[-1]] * self.game.stack_num

    def step(self):
        rng, game, obs = self.rng, self.game, self.stack
        self.stack = [*obs[1:], game.kind(rng, obs[-1])]
        ends = rng.random() < game.end_chance
        how = rng.integers(1, 4) if ends else 0  # terminated, truncated, or both
        transition = Transition(
            obs=obs,
            act=int(rng.choice(WILD_ACTIONS if rng.random() < game.wild_chance else [0, 1])),
            rew=float(rng.choice(WILD_REWARDS if rng.random() < game.wild_chance else [0, 1])),
            terminated=bool(how & 1),
            truncated=bool(how & 2),
            obs_next=self.stack,
        )
        if ends or rng.random() < game.break_chance:
            self.start(ended=ends)
        return transition


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


def smallest_cap(batch, *args, **options):
    """The fewest bytes with which a compact buffer says it can work."""
    buffer = CompactVectorReplayBuffer(*args, **options, max_bytes=1)
    with pytest.raises(ValueError, match="max_bytes=1 ") as error:
        buffer.add(batch, buffer_ids=[0])
    return int(re.search(r"at least (\d+)", str(error.value)).group(1))


def same_frame(one, other):
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


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
