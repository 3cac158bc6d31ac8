"""Random play, for tests of compact replay.

A frame is a dict of arrays: one named ``""``, or those of a Batch observation by their keys. A
stack is a list of frames, oldest first.
"""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from medqn_tianshou import CompactVectorReplayBuffer

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


def examples(count):
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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


def same_frame(one, other):
    return all(one[name].tobytes() == other[name].tobytes() for name in one)
