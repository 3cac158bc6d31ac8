"""The limit: environment, network and updates in a minimal loop, without any framework."""

import random
from typing import Any

import numpy as np
import torch

from benchmarks.setups import PIXEL_SCALE, Setup
from benchmarks.speed.bare_learner import BareLearner
from benchmarks.speed.bare_replay import Bounds, FrameRing, TransitionRing


class BareAtariLoop:
    """Training on Atari games, directly on EnvPool, or on ale-py for a single game."""

    def __init__(self, setup: Setup) -> None:
        value = setup.value
        envs = setup.make_vector_envs()
        self._pool: Any = OneGame(envs.env) if hasattr(envs, "env") else envs.pool
        self._ids = np.arange(value.training_num, dtype=np.int32)
        self._actions = int(setup.spaces[1].n)
        self._generator = np.random.default_rng(setup.value.seed)
        self.learner = BareLearner(setup)
        self.ring = FrameRing(
            capacity=value.buffer_size,
            env_count=value.training_num,
            n_step=value.n_step,
            gamma=value.gamma,
            generator=self._generator,
        )
        self._epsilon = setup.epsilon
        self._n_step = value.n_step
        self._batch_size = value.batch_size
        self._interval = value.step_per_collect
        self._target_interval = setup.target_update_env_steps
        self._env_steps = 0
        frames, _ = self._pool.reset(self._ids)
        self.stacks = np.repeat(frames, value.frames_stack, axis=1)
        self._age = np.zeros(value.training_num, np.int64)
        self._scaled = bool(value.scale_obs)
        for _ in range(value.warmup_steps // value.training_num):
            self.step(self._generator.integers(self._actions, size=value.training_num))

    def advance(self, env_steps: int) -> None:
        """Train for some environment steps."""
        end = self._env_steps + env_steps
        while self._env_steps < end:
            for _ in range(0, self._interval, len(self._ids)):
                self.step(self._choose())
            self._env_steps += self._interval
            self._update()
            if self._env_steps % self._target_interval == 0:
                self.learner.sync_target()

    def step(self, act: Any) -> None:
        """Step all environments, and start the next episode of those whose episode ended."""
        frames, rew, terminated, truncated, _ = self._pool.step(act, self._ids)
        done = terminated | truncated
        self.ring.add(self.stacks[:, -1], self._age, act, rew, done)
        self.stacks[:, :-1] = self.stacks[:, 1:]
        self.stacks[:, -1] = frames[:, 0]
        self._age += 1
        if done.any():
            ended = self._ids[done]
            # EnvPool starts the next episode, whatever the action.
            frames = self._pool.step(np.zeros(len(ended), np.int32), ended)[0]
            self.stacks[ended] = frames
            self._age[ended] = 0

    def close(self) -> None:
        """Free the pool."""
        self._pool = None

    def _choose(self) -> Any:
        count = len(self._ids)
        explores = self._generator.random(count) < self._epsilon
        drawn = self._generator.integers(self._actions, size=count)
        if explores.all():
            return drawn
        with torch.inference_mode():
            act = (
                self.learner.network(to_floats(self.stacks, scaled=self._scaled)).argmax(1).numpy()
            )
        return np.where(explores, drawn, act)

    def _update(self) -> None:
        count = self._batch_size
        step, env = self.ring.draw(count)
        act, rew, factor = self.ring.targets(step, env)
        steps, envs = [step], [env]
        if self.learner.coef:
            for _ in range(self.learner.epochs):
                drawn, drawn_env = self.ring.draw(count)
                steps.append(drawn)
                envs.append(drawn_env)
        steps.append(step + self._n_step)
        envs.append(env)
        stacks = self.ring.stacks(np.concatenate(steps), np.concatenate(envs))
        self.learner.update(
            to_floats(stacks, scaled=self._scaled), *map(torch.from_numpy, (act, rew, factor))
        )


class OneGame:
    """One game behind the methods of an EnvPool that :class:`BareAtariLoop` calls."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._ended = False

    def reset(self, ids: Any) -> tuple[Any, None]:
        """Start the first episode."""
        return self._env.reset()[0][None, -1:], None

    def step(self, act: Any, ids: Any) -> tuple[Any, Any, Any, Any, None]:
        """Step, or start the next episode after the end of one."""
        rew, terminated, truncated = 0.0, False, False
        if self._ended:
            obs, _ = self._env.reset()
        else:
            obs, rew, terminated, truncated, _ = self._env.step(act[0])
        self._ended = terminated or truncated
        return obs[None, -1:], *map(np.array, ([rew], [terminated], [truncated])), None


class BareLoop:
    """Training in one Gymnasium environment with small observations."""

    def __init__(self, setup: Setup) -> None:
        value = setup.value
        self._env: Any = setup.make_env()
        self._actions = int(self._env.action_space.n)
        generator = np.random.default_rng(setup.value.seed)
        random.seed(setup.value.seed)
        self.learner = BareLearner(setup)
        self._obs, _ = self._env.reset(seed=setup.value.seed)
        self.ring = TransitionRing(
            capacity=value.buffer_size, example=self._obs, generator=generator
        )
        self._bounds = Bounds(example=self._obs, generator=generator)
        self._uniform = value.sampling == "uniform"
        self._whole_buffer = setup.whole_buffer
        self._epsilon = setup.epsilon
        self._gamma = np.float32(value.gamma)
        self._batch_size = value.batch_size
        self._interval = value.step_per_collect
        self._target_interval = setup.target_update_env_steps
        self._env_steps = 0
        for _ in range(value.warmup_steps):
            self._step(random.randrange(self._actions))

    def advance(self, env_steps: int) -> None:
        """Train for some environment steps."""
        end = self._env_steps + env_steps
        while self._env_steps < end:
            for _ in range(self._interval):
                self._step(self._choose())
            before = self._env_steps // self._target_interval
            self._env_steps += self._interval
            if self._env_steps // self._target_interval > before:
                self.learner.sync_target()
            self._update()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _choose(self) -> int:
        if random.random() < self._epsilon:
            return random.randrange(self._actions)
        with torch.inference_mode():
            q = self.learner.network(torch.from_numpy(self._obs).float()[None])
        return int(q.argmax())

    def _step(self, act: int) -> None:
        obs_next, rew, terminated, truncated, _ = self._env.step(act)
        self.ring.add(self._obs, act, rew, terminated, obs_next)
        if self._uniform:
            self._bounds.widen(obs_next)
        if terminated or truncated:
            obs_next, _ = self._env.reset()
            if self._uniform:
                self._bounds.widen(obs_next)
        self._obs = obs_next

    def _update(self) -> None:
        ring = self.ring
        index: Any = slice(None) if self._whole_buffer else ring.draw(self._batch_size)
        parts = [ring.obs[index]]
        if self.learner.coef:
            count = self._batch_size * self.learner.epochs
            parts.append(self._bounds.draw(count) if self._uniform else ring.obs[ring.draw(count)])
        parts.append(ring.obs_next[index])
        states = torch.from_numpy(np.concatenate(parts)).float()
        targets = ring.act[index], ring.rew[index], ring.alive[index] * self._gamma
        self.learner.update(states, *map(torch.from_numpy, targets))


def to_floats(stacks: Any, *, scaled: bool) -> torch.Tensor:
    """Turn pixels into the network's input."""
    floats = torch.from_numpy(stacks).float()
    if scaled:
        floats.mul_(PIXEL_SCALE)
    # Changing the layout after the conversion is the fastest way here.
    return floats.contiguous(memory_format=torch.channels_last)
