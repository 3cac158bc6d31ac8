"""Play to fill replay buffers with: random, or recorded and repeated."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.env import BaseVectorEnv

from medqn_tianshou import CompactVectorReplayBuffer
from medqn_tianshou.envs.atari import make_atari_envs

GAMES = ("Qbert", "Phoenix", "BattleZone", "DoubleDunk", "NameThisGame")
"""The Atari games of the paper."""
ATARI_REPLAY: dict[str, Any] = {"stack_num": 4, "ignore_obs_next": True, "save_only_last_obs": True}
"""How the Atari script stores frames."""
REPLAY = {"raw": VectorReplayBuffer, "compact": CompactVectorReplayBuffer}


def make_game(game: str, num_envs: int = 1) -> BaseVectorEnv:
    """Build environments of an Atari game as they are in training."""
    task = f"{game}NoFrameskip-v4"
    return make_atari_envs(task=task, num_envs=num_envs, seed=0, training=True)


class RandomPlay:
    """Random play, a step of all environments at a time, in the form that collectors store.

    :param repeat_prob: the probability that an environment repeats its last action.
    """

    def __init__(self, envs: BaseVectorEnv, *, repeat_prob: float = 0.0, seed: int = 0) -> None:
        self._envs = envs
        self._repeat_prob = repeat_prob
        self._generator = np.random.default_rng(seed)
        self._action_count = int(envs.action_space[0].n)
        self._ids = np.arange(len(envs))
        self._act = self._draw()
        self._obs: NDArray[Any] = envs.reset()[0]

    def step(self) -> Batch:
        """Play a step."""
        repeats = self._generator.random(len(self._ids)) < self._repeat_prob
        self._act = np.where(repeats, self._act, self._draw())
        step: Any = self._envs.step(self._act, self._ids)
        obs_next, rew, terminated, truncated, _ = step
        done = terminated | truncated
        batch = Batch(
            obs=self._obs,
            act=self._act,
            rew=rew,
            terminated=terminated,
            truncated=truncated,
            done=done,
            obs_next=obs_next,
        )
        self._obs = obs_next
        if done.any():
            self._obs = obs_next.copy()
            self._obs[done] = self._envs.reset(self._ids[done])[0]
        return batch

    def fill(self, *buffers: VectorReplayBuffer, transitions: int) -> None:
        """Add the same transitions to all buffers."""
        for _ in range(transitions // len(self._ids)):
            batch = self.step()
            for buffer in buffers:
                buffer.add(batch, self._ids)

    def _draw(self) -> NDArray[np.int64]:
        return self._generator.integers(self._action_count, size=len(self._ids))


@dataclass(frozen=True)
class Recording:
    """Recorded play of one environment that begins with an episode: the newest frames only."""

    obs: NDArray[Any]
    obs_next: NDArray[Any]
    steps: list[Batch]
    """All but the observations."""

    @classmethod
    def of(cls, play: RandomPlay, length: int) -> "Recording":
        """Record some steps of play that has just begun."""
        batch = play.step()
        frames = np.empty((2, length, *batch.obs.shape[2:]), batch.obs.dtype)
        steps = []
        for i in range(length):
            frames[:, i] = batch.obs[0, -1], batch.obs_next[0, -1]
            names = ("act", "rew", "terminated", "truncated", "done")
            steps.append(Batch({name: batch[name] for name in names}))
            batch = play.step()
        steps[-1].truncated = steps[-1].done = np.ones(1, bool)
        return cls(frames[0], frames[1], steps)

    def repeat(self, transitions: int) -> Iterator[Batch]:
        """Repeat the recording, with its frames shifted by another pixel each time."""
        length = len(self.steps)
        for first in range(0, transitions, length):
            row, column = divmod(first // length, self.obs.shape[-1])
            obs, obs_next = (
                np.roll(frames, (row, column), axis=(1, 2)) for frames in (self.obs, self.obs_next)
            )
            for i in range(min(length, transitions - first)):
                # A stack of one frame is enough: the buffer reads only the newest frame.
                yield Batch(self.steps[i], obs=obs[None, None, i], obs_next=obs_next[None, None, i])
