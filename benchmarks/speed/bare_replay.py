"""The bare loop's replay: numpy rings, and no more bookkeeping than the updates need."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Index = NDArray[np.int64]
STACK = 4


class FrameRing:
    """Frames of Atari games, each stored once and stacked when read.

    A truncated game counts as ended: the frame after the truncation is not stored.

    :param capacity: transitions of all environments together.
    :param env_count: environments, which step together.
    """

    def __init__(
        self,
        *,
        capacity: int,
        env_count: int,
        n_step: int,
        gamma: float,
        generator: np.random.Generator,
    ) -> None:
        self._length = capacity // env_count
        self._env_count = env_count
        self._frames = np.zeros((self._length * env_count, 84, 84), np.uint8)
        self._age = np.zeros((self._length, env_count), np.int64)
        self._act = np.zeros((self._length, env_count), np.int64)
        self._rew = np.zeros((self._length, env_count), np.float32)
        self._done = np.zeros((self._length, env_count), np.bool_)
        self._steps = 0
        self._n_step = n_step
        self._ahead = np.arange(n_step)[:, None]
        self._discounts = (gamma ** np.arange(n_step + 1)).astype(np.float32)
        self._back = np.arange(STACK - 1, -1, -1)
        self._stacks = np.zeros((0, STACK, 84, 84), np.uint8)
        self._generator = generator

    def add(self, frames: Array, age: Array, act: Array, rew: Array, done: Array) -> None:
        """Store a step of each environment.

        :param frames: the newest frame of each environment.
        :param age: how many frames of the episode came before it.
        """
        slot = self._steps % self._length
        self._frames[slot * self._env_count : (slot + 1) * self._env_count] = frames
        self._age[slot], self._act[slot], self._rew[slot] = age, act, rew
        self._done[slot] = done
        self._steps += 1

    def draw(self, count: int) -> tuple[Index, Index]:
        """Sample transitions whose stack and n-step successor are stored: step and environment."""
        first = max(self._steps - self._length + STACK - 1, 0)
        last = self._steps - self._n_step
        step, env = np.divmod(
            self._generator.integers(first * self._env_count, last * self._env_count, count),
            self._env_count,
        )
        return step, env

    def stacks(self, step: Index, env: Index) -> NDArray[np.uint8]:
        """Stack frames of one episode; the next call overwrites the array."""
        if len(self._stacks) != len(step):
            self._stacks = np.zeros((len(step), STACK, 84, 84), np.uint8)
        back = np.minimum(self._age[step % self._length, env][:, None], self._back)
        row = (step[:, None] - back) % self._length * self._env_count + env[:, None]
        # "clip" because "raise", the default, writes to a copy first.
        return np.take(self._frames, row, axis=0, out=self._stacks, mode="clip")

    def targets(
        self, step: Index, env: Index
    ) -> tuple[Index, NDArray[np.float32], NDArray[np.float32]]:
        """Read actions, n-step rewards, and the factor of the value n steps on."""
        slot_NB = (step + self._ahead) % self._length
        # The discount of each reward, and of the value: 0 after the end of the episode.
        factor_NB = np.empty((self._n_step + 1, len(step)), np.float32)
        factor_NB[0] = 1.0
        np.cumprod(~self._done[slot_NB, env], axis=0, out=factor_NB[1:])
        factor_NB *= self._discounts[:, None]
        reward_B = (self._rew[slot_NB, env] * factor_NB[:-1]).sum(axis=0)
        return self._act[slot_NB[0], env], reward_B, factor_NB[-1]


class TransitionRing:
    """Whole transitions of one environment with small observations."""

    def __init__(self, *, capacity: int, example: Array, generator: np.random.Generator) -> None:
        self._capacity = capacity
        self.obs = np.zeros((capacity, *example.shape), example.dtype)
        self.obs_next = np.zeros_like(self.obs)
        self.act = np.zeros(capacity, np.int64)
        self.rew = np.zeros(capacity, np.float32)
        self.alive = np.zeros(capacity, np.float32)
        self._added = 0
        self._generator = generator

    def add(self, obs: Array, act: int, rew: float, terminated: bool, obs_next: Array) -> None:
        """Store a transition."""
        slot = self._added % self._capacity
        self.obs[slot], self.obs_next[slot] = obs, obs_next
        self.act[slot], self.rew[slot] = act, rew
        self.alive[slot] = not terminated
        self._added += 1

    def draw(self, count: int) -> Index:
        """Sample transitions."""
        return self._generator.integers(0, min(self._added, self._capacity), count)


class Bounds:
    """The bounds of all states received, and uniform states within them."""

    def __init__(self, *, example: Array, generator: np.random.Generator) -> None:
        self._low, self._high = example.copy(), example.copy()
        self._generator = generator

    def widen(self, obs: Array) -> None:
        """Widen the bounds to a state."""
        np.minimum(self._low, obs, out=self._low)
        np.maximum(self._high, obs, out=self._high)

    def draw(self, count: int) -> Array:
        """Sample states."""
        size = (count, *self._low.shape)
        if self._low.dtype == np.bool_:
            bits = self._generator.integers(0, 2, size, np.uint8).view(np.bool_)
            bits &= self._high
            bits |= self._low
            return bits
        share = self._generator.random(size, np.float32)
        share *= self._high - self._low
        share += self._low
        return share
