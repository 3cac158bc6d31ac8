"""A drop-in for Tianshou's Collector that never copies a finished episode."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch, Collector, CollectStats, ReplayBuffer
from tianshou.data.collector import EpisodeRolloutHookProtocol, StepHookProtocol
from tianshou.env import BaseVectorEnv, DummyVectorEnv

from medqn_tianshou.collecting.alone import suits_alone, take_alone
from medqn_tianshou.collecting.choosing import Actions, policy_actions, random_actions
from medqn_tianshou.collecting.quick import Actor, quick_actor
from medqn_tianshou.collecting.steps import Step, action_batch, collect_stats
from medqn_tianshou.host.api import Agent, Policy
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.ring import RingReplayBuffer

Choose = Callable[[NDArray[Any], NDArray[np.int_]], Actions]
"""Chooses actions for observations of the environments with these numbers."""


class LeanCollector(Collector[CollectStats]):
    """Collects the transitions and statistics of Tianshou's Collector, in less memory.

    Tianshou's Collector reads each finished episode back from the buffer, frame stacks included:
    hundreds of megabytes for a long Atari episode, and a wrong length if the buffer is shorter than
    the episode, as in MeDQN(U). This collector counts lengths and returns while it steps, and reads
    nothing back. It stores ``info`` only in a compact buffer that keeps it, and never ``policy``.

    It does not support recurrent policies, asynchronous environments or episode hooks, which need
    the copy.

    :param buffer: where transitions are stored; None stores nothing, for evaluation.
    :param exploration_noise: whether actions pass through ``policy.exploration_noise``.
    :param on_step_hook: called with each step's actions and transitions before they are stored.
    :param on_states: called with the states that each step acts from; cheaper than a step hook.
    :param on_episode_end: called at the end of each episode with the number of steps collected
        since the last reset of the statistics, the episode's return and its length.
    """

    def __init__(
        self,
        policy: Policy | Agent,
        env: BaseVectorEnv | gym.Env[Any, Any],
        buffer: ReplayBuffer | None = None,
        exploration_noise: bool = False,
        on_step_hook: StepHookProtocol | None = None,
        on_states: Callable[[NDArray[Any]], None] | None = None,
        on_episode_end: Callable[[int, float, int], None] | None = None,
    ) -> None:
        self._stores = buffer is not None
        self._on_states = on_states
        self._agent = policy
        envs: Any = env if hasattr(env, "__len__") else DummyVectorEnv([lambda: env])
        if envs.is_async:
            raise ValueError(
                f"env={type(envs).__name__} steps asynchronously: use Tianshou's AsyncCollector, "
                "or an environment without wait_num and timeout"
            )
        if "policy" in getattr(buffer, "keep", ()):
            raise ValueError("keep=('policy',): LeanCollector never stores it; use Tianshou's")
        super().__init__(
            policy,
            envs,
            # Without a buffer, the base class creates one of 10,000 entries per environment and
            # compiles code for it.
            CompactVectorReplayBuffer(len(envs), len(envs), random_seed=0)
            if buffer is None
            else buffer,
            exploration_noise=exploration_noise,
            on_step_hook=on_step_hook,
        )
        self.on_episode_end = on_episode_end
        self._actor: Actor | None = None
        # An array of each environment's where rewards are vectors.
        self._episode_return: list[Any] = [0.0] * self.env_num
        self._episode_length = [0] * self.env_num
        self._resets_E = np.zeros(self.env_num, int)
        self._env_ids_E = np.arange(self.env_num)

    def state_dict(self) -> dict[str, Any]:
        """Return the collector's own state, without policy, buffer, environments and generators."""
        return {
            "clocks": [self.collect_step, self.collect_episode, self.collect_time],
            "episode_return": self._episode_return,
            "episode_length": self._episode_length,
            "resets": self._resets_E,
            "obs": self._pre_collect_obs_RO,
        }

    def load_state_dict(self, state: dict[str, Any], *, new_episodes: bool = False) -> None:
        """Resume from what :meth:`state_dict` returned.

        A collector without a buffer, whose games all start with a reset, resets its environments as
        often as they were reset before: that restores their random generators, even EnvPool's.

        :param new_episodes: reset the environments, which cannot be restored; otherwise the caller
            restores them.
        """
        if len(state["episode_return"]) != self.env_num or len(state["resets"]) != self.env_num:
            raise ValueError(f"not a state of {self.env_num} environments")
        self.collect_step, self.collect_episode, self.collect_time = state["clocks"]
        if not self._stores:
            self._reset_again(state["resets"])
        elif new_episodes:
            self.reset_env()
        else:
            self._episode_return = list(state["episode_return"])
            self._episode_length = [int(value) for value in state["episode_length"]]
            self._resets_E = state["resets"]
            self._pre_collect_obs_RO = state["obs"]

    def _reset_again(self, resets_E: NDArray[np.int_]) -> None:
        while (self._resets_E < resets_E).any():
            behind = np.flatnonzero(self._resets_E < resets_E)
            self.env.reset(behind)
            self._resets_E[behind] += 1

    def reset_env(
        self, gym_reset_kwargs: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Reset all environments and the counts of their current episodes."""
        self._episode_return = [0.0] * self.env_num
        self._episode_length = [0] * self.env_num
        self._resets_E += 1
        obs_EO, info_E = self.env.reset(**(gym_reset_kwargs or {}))
        self._pre_collect_obs_RO = obs_EO
        return obs_EO, info_E

    def set_on_episode_done_hook(self, hook: EpisodeRolloutHookProtocol | None) -> None:
        """Refuse a hook, which would need a copy of each episode."""
        if hook is not None:
            raise ValueError(
                "LeanCollector has no episode hooks, which need a copy of each episode: use "
                "on_episode_end, or Tianshou's Collector"
            )

    def settle(self) -> None:
        """Wait for steps that are collected in the background; there are none here."""

    def stop(self) -> None:
        """Stop collecting in the background; this class never does so."""

    def collect(
        self,
        n_step: int | None = None,
        n_episode: int | None = None,
        random: bool = False,
        render: float | None = None,
        reset_before_collect: bool = False,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> CollectStats:
        """Collect as Tianshou does, without switching modes of a network that has none."""
        self._actor = actor = quick_actor(self._agent, explore=self.exploration_noise)
        if n_step is None or n_episode or reset_before_collect or actor is None or actor.has_modes:
            return super().collect(
                n_step, n_episode, random, render, reset_before_collect, gym_reset_kwargs
            )
        if n_step < 1 or n_step % len(self._env_ids_E):
            self._validate_n_step_n_episode(n_episode, n_step)
        start = time.time()
        stats = self._collect(n_step, None, random, render, gym_reset_kwargs)
        stats.set_collect_time(time.time() - start, update_collect_speed=True)
        if stats.n_collected_episodes:
            stats.refresh_all_sequence_stats()
        return stats

    def _collect(
        self,
        n_step: int | None = None,
        n_episode: int | None = None,
        random: bool = False,
        render: float | None = None,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> CollectStats:
        is_plain = not (n_episode or random or render or gym_reset_kwargs)
        if n_step and is_plain and suits_alone(self):
            return take_alone(self, n_step)
        choose = self._chooser(random=random)
        stats = self._take(self._play(choose, n_step, n_episode, render, gym_reset_kwargs))
        if n_episode:
            self.reset_env(gym_reset_kwargs)
        return stats

    def _play(
        self,
        choose: Choose,
        n_step: int | None,
        n_episode: int | None = None,
        render: float | None = None,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> Iterator[Step]:
        """Step the environments."""
        if self._pre_collect_obs_RO is None:
            raise ValueError("the collector was never reset: call reset() before collect()")
        env_ids_R, obs_RO = self._env_ids_E, self._pre_collect_obs_RO
        if n_episode is not None and n_episode < self.env_num:
            env_ids_R, obs_RO = env_ids_R[:n_episode], obs_RO[:n_episode]
        steps = episodes = 0
        step_envs: Any = self.env.step  # once: vector environments look attributes up slowly
        while not ((n_step and steps >= n_step) or (n_episode and episodes >= n_episode)):
            act_R, env_act_R = choose(obs_RO, env_ids_R)
            result = step_envs(env_act_R, env_ids_R)
            step = Step(env_ids_R, obs_RO, act_R, *result, env_act_R=env_act_R)
            yield step
            if render:
                self.env.render()
                time.sleep(render)
            steps += len(env_ids_R)
            obs_RO = step.obs_next_RO
            done_R = step.done_R
            if done_R.any():
                episodes += np.count_nonzero(done_R)
                done_ids_D = env_ids_R[done_R]
                self._resets_E[done_ids_D] += 1
                first_obs_DO = self.env.reset(done_ids_D, **(gym_reset_kwargs or {}))[0]
                obs_RO = obs_RO.copy()  # the buffer or a hook may keep the original
                obs_RO[done_R] = first_obs_DO
                if n_episode is not None:
                    # As in Tianshou: an environment whose episode just ended pauses when the others
                    # suffice for the missing episodes, so short episodes are not favoured.
                    surplus = max(len(env_ids_R) - (n_episode - episodes), 0)
                    keep_R = np.ones(len(env_ids_R), dtype=bool)
                    keep_R[np.flatnonzero(done_R)[:surplus]] = False
                    env_ids_R, obs_RO = env_ids_R[keep_R], obs_RO[keep_R]
        self._pre_collect_obs_RO = obs_RO

    def _take(self, play: Iterable[Step]) -> CollectStats:
        """Store the steps, call the hooks, and count."""
        ended: list[tuple[Any, int]] = []
        steps = 0
        for step in play:
            if self._on_states is not None:
                self._on_states(step.obs_RO)
            rewards = self._store(step)
            steps += len(step.env_ids_R)
            ids, dones = step.env_ids_R.tolist(), step.done_R.tolist()
            for env_id, reward, done in zip(ids, rewards, dones, strict=True):
                self._episode_return[env_id] = self._episode_return[env_id] + reward
                self._episode_length[env_id] += 1
                if done:
                    ended.append(self._end_episode(env_id, steps))
        return self._count(steps, ended)

    def _end_episode(self, env_id: int, steps: int) -> tuple[Any, int]:
        """Return the return and the length of an episode, which some steps of a collect ended."""
        ended = self._episode_return[env_id], self._episode_length[env_id]
        self._episode_return[env_id], self._episode_length[env_id] = 0.0, 0
        if self.on_episode_end is not None:
            self.on_episode_end(self.collect_step + steps, *ended)
        return ended

    def _count(self, steps: int, ended: Sequence[tuple[Any, int]]) -> CollectStats:
        """Count the steps and the episodes of a collect; return its statistics."""
        self.collect_step += steps
        self.collect_episode += len(ended)
        return collect_stats(steps, ended)

    def _store(self, step: Step) -> Iterable[Any]:
        """Call the step hook and store a step; return its rewards, which the hook may change."""
        buffer: Any = self.buffer
        hook = self._on_step_hook
        if hook is None:
            if not self._stores:
                return step.rewards
            if type(buffer) is RingReplayBuffer and buffer.takes(step.obs_RO):
                buffer.append({name: values[0] for name, values in step.arrays().items()})
                return step.rewards
        batch: Any = step.batch()
        if hook is not None or "info" in getattr(buffer, "keep", ()):
            batch.info = Batch(step.info) if isinstance(step.info, dict) else step.info
        if hook is not None:
            hook(action_batch(step), batch)
        if self._stores:
            if "info" not in getattr(buffer, "keep", ()):
                batch.pop("info", None)
            buffer.add(batch, buffer_ids=step.env_ids_R)
        return step.rewards if hook is None else np.asarray(batch.rew)

    def _chooser(self, *, random: bool) -> Choose:
        policy, explore = self.policy, self.exploration_noise
        if random:
            return lambda _, env_ids_R: random_actions(policy, self._action_space, env_ids_R)
        obs: Any = self._pre_collect_obs_RO
        actor = self._actor
        if obs is None or obs.dtype == object or actor is None:  # objects may contain masks
            return lambda obs_RO, _: policy_actions(policy, obs_RO, explores=explore)
        if self._on_step_hook is None:
            return lambda obs_RO, _: (act_R := actor(obs_RO), act_R)

        def choose_again(obs_RO: NDArray[Any], _: NDArray[np.int_]) -> Actions:
            acting = quick_actor(self._agent, explore=explore)  # the hook may change the policy
            if acting is None:
                return policy_actions(policy, obs_RO, explores=explore)
            return (act_R := acting(obs_RO)), act_R

        return choose_again
