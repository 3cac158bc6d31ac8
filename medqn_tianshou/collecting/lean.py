"""A drop-in for Tianshou's Collector that never copies a finished episode."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import Batch, Collector, CollectStats
from tianshou.data.buffer.base import ReplayBuffer
from tianshou.data.collector import CollectActionBatchProtocol, StepHookProtocol
from tianshou.data.types import ObsBatchProtocol, RolloutBatchProtocol
from tianshou.env import BaseVectorEnv
from tianshou.policy import BasePolicy

from medqn_tianshou.envs.state import envs_state, set_envs_state
from medqn_tianshou.replay import CompactVectorReplayBuffer

Choose = Callable[[NDArray[Any], NDArray[np.int_]], NDArray[Any]]
"""Chooses actions for observations of the environments with these numbers."""


class QuickPolicy(Protocol):
    """A policy that chooses actions without Tianshou's batches around them."""

    chooses_quickly: bool

    def choose_actions(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Choose as ``forward`` and ``exploration_noise`` do, with the same random draws.

        :param obs: a batch of observations.
        :param explore: whether to explore.
        """


class LeanCollector(Collector[CollectStats]):
    """Collects the transitions and statistics of Tianshou's Collector, in less memory.

    Tianshou's reads each finished episode back from the buffer, frame stacks and all: hundreds of
    megabytes for a long Atari episode, and a wrong length where the buffer is shorter than the
    episode, as MeDQN(U)'s is. Here lengths and returns are counted while stepping, nothing is read
    back, and ``info`` and ``policy`` are not stored.

    For policies without a recurrent state. Episode hooks, which need the copy, are not offered.

    :param policy: chooses the actions.
    :param env: the vector environment to step.
    :param buffer: where transitions go; None stores nothing, which is what evaluation needs.
    :param exploration_noise: whether actions pass through ``policy.exploration_noise``.
    :param on_step_hook: called with each step's actions and transitions before they are stored.
    :param on_states: called with the states of each reset and step as they are received: what a
        step hook could tell, at a fraction of its cost.
    :param on_episode_end: called with the number of steps collected since the last reset of the
        statistics, and the return and length of an episode that ended with them.
    """

    def __init__(
        self,
        policy: BasePolicy[Any],
        env: BaseVectorEnv,
        buffer: ReplayBuffer | None = None,
        exploration_noise: bool = False,
        on_step_hook: StepHookProtocol | None = None,
        on_states: Callable[[NDArray[Any]], None] | None = None,
        on_episode_end: Callable[[int, float, int], None] | None = None,
    ) -> None:
        self._stores = buffer is not None
        self._on_states = on_states
        super().__init__(
            policy,
            env,
            # The base class would otherwise create one of 10,000 entries per environment, and
            # compile code for it.
            CompactVectorReplayBuffer(len(env), len(env), random_seed=0)
            if buffer is None
            else buffer,
            exploration_noise=exploration_noise,
            on_step_hook=on_step_hook,
        )
        self._chooses_quickly = getattr(policy, "chooses_quickly", False)
        self.on_episode_end = on_episode_end
        self._episode_return = [0.0] * self.env_num
        self._episode_length = [0] * self.env_num
        self._resets_E = np.zeros(self.env_num, int)

    def state_dict(self) -> dict[str, Any]:
        """Everything that later steps depend on, but for policy, buffer and global generators."""
        return {
            "clocks": [self.collect_step, self.collect_episode, self.collect_time],
            "episode_return": self._episode_return,
            "episode_length": self._episode_length,
            "resets": self._resets_E,
            "obs": self._pre_collect_obs_RO,
            "envs": envs_state(self.env) if self._stores else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Continue from what :meth:`state_dict` returned.

        A collector for evaluations, whose games all start with a reset, resets its environments as
        often as they were: then they are where they were, EnvPool's too.

        :param state: the state.
        :return: False if the environments could not be put back and started new episodes.
        """
        if len(state["episode_return"]) != self.env_num or len(state["resets"]) != self.env_num:
            raise ValueError(f"not a state of {self.env_num} environments")
        self.collect_step, self.collect_episode, self.collect_time = state["clocks"]
        if not self._stores:
            self._reset_again(state["resets"])
            return True
        if state["envs"] is None:
            self.reset_env()
            return False
        set_envs_state(self.env, state["envs"])
        self._episode_return = [float(value) for value in state["episode_return"]]
        self._episode_length = [int(value) for value in state["episode_length"]]
        self._resets_E = state["resets"]
        self._pre_collect_obs_RO = state["obs"]
        return True

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
        if self._on_states is not None:
            self._on_states(obs_EO)
        self._pre_collect_obs_RO = obs_EO
        return obs_EO, info_E

    def settle(self) -> None:
        """Wait until nothing is collected in the background; here nothing ever is."""

    def stop(self) -> None:
        """End what is collected in the background, for good; here nothing ever is."""

    def _collect(
        self,
        n_step: int | None = None,
        n_episode: int | None = None,
        random: bool = False,
        render: float | None = None,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> CollectStats:
        choose = self._choose_at_random if random else self._choose
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
    ) -> Iterator["Played"]:
        """Step the environments; give each step, and the first states of episodes after a reset."""
        if self._pre_collect_obs_RO is None:
            raise ValueError("the collector was never reset: call reset() before collect()")
        env_count = self.env_num if n_episode is None else min(self.env_num, n_episode)
        env_ids_R = np.arange(env_count)
        obs_RO = self._pre_collect_obs_RO[env_ids_R]
        steps = episodes = 0
        while not ((n_step and steps >= n_step) or (n_episode and episodes >= n_episode)):
            act_R = choose(obs_RO, env_ids_R)
            result: Any = self.env.step(act_R, env_ids_R)
            step = Step(env_ids_R, obs_RO, act_R, *result)
            yield step
            if render:
                self.env.render()
                time.sleep(render)
            steps += len(env_ids_R)
            obs_RO = step.obs_next_RO
            done_R = step.done_R
            if done_count := np.count_nonzero(done_R):
                episodes += done_count
                done_ids_D = env_ids_R[done_R]
                self._resets_E[done_ids_D] += 1
                first_obs_DO = self.env.reset(done_ids_D, **(gym_reset_kwargs or {}))[0]
                yield first_obs_DO
                obs_RO = obs_RO.copy()  # the buffer or a hook may hold the other
                obs_RO[done_R] = first_obs_DO
                if n_episode is not None:
                    # As Tianshou does: an environment whose episode just ended rests when the
                    # others suffice for what is missing, so short episodes are not favoured.
                    surplus = max(len(env_ids_R) - (n_episode - episodes), 0)
                    keep_R = np.ones(len(env_ids_R), dtype=bool)
                    keep_R[np.flatnonzero(done_R)[:surplus]] = False
                    env_ids_R, obs_RO = env_ids_R[keep_R], obs_RO[keep_R]
        self._pre_collect_obs_RO = obs_RO

    def _take(self, play: Iterable["Played"]) -> CollectStats:
        """Store what is played, tell those who want to know, and count."""
        returns: list[float] = []
        lengths: list[int] = []
        steps = 0
        for step in play:
            if not isinstance(step, Step):
                if self._on_states is not None:
                    self._on_states(step)
                continue
            if self._on_states is not None:
                self._on_states(step.obs_next_RO)
            batch = step.batch()
            if self._on_step_hook is not None:
                batch.info = Batch(step.info) if isinstance(step.info, dict) else step.info
                self._on_step_hook(_action_batch(step.act_R), batch)
                batch.pop("info")
            if self._stores:
                self.buffer.add(batch, buffer_ids=step.env_ids_R)
            steps += len(step.env_ids_R)
            for env_id, reward, done in zip(
                step.env_ids_R.tolist(), step.rew_R.tolist(), step.done_R.tolist(), strict=True
            ):
                self._episode_return[env_id] += reward
                self._episode_length[env_id] += 1
                if done:
                    returns.append(float(self._episode_return[env_id]))
                    lengths.append(self._episode_length[env_id])
                    self._episode_return[env_id], self._episode_length[env_id] = 0.0, 0
                    if self.on_episode_end is not None:
                        self.on_episode_end(self.collect_step + steps, returns[-1], lengths[-1])
        self.collect_step += steps
        self.collect_episode += len(returns)
        return CollectStats(
            n_collected_episodes=len(returns),
            n_collected_steps=steps,
            returns=np.array(returns, dtype=float),
            lens=np.array(lengths, dtype=int),
        )

    def _choose_at_random(self, obs_RO: NDArray[Any], env_ids_R: NDArray[np.int_]) -> NDArray[Any]:
        # Tianshou's environments have a space each, EnvPool's share one.
        spaces = self._action_space
        own = isinstance(spaces, list)
        return np.array([(spaces[i] if own else spaces).sample() for i in env_ids_R])

    def _choose(self, obs_RO: NDArray[Any], env_ids_R: NDArray[np.int_]) -> NDArray[Any]:
        if self._chooses_quickly and obs_RO.dtype != object:  # an object would hold a mask
            policy = cast(QuickPolicy, self.policy)
            return policy.choose_actions(obs_RO, explore=self.exploration_noise)
        obs_batch = cast(ObsBatchProtocol, Batch(obs=obs_RO, info=Batch()))
        with torch.no_grad():
            act_R: NDArray[Any] = self.policy(obs_batch).act
        if self.exploration_noise:
            act_R = self.policy.exploration_noise(act_R, obs_batch)
        return act_R


class Step:
    """What some environments answered to an action."""

    __slots__ = (
        "act_R", "done_R", "env_ids_R", "info", "obs_RO", "obs_next_RO", "rew_R", "terminated_R",
        "truncated_R",
    )  # fmt: skip

    def __init__(
        self,
        env_ids_R: NDArray[np.int_],
        obs_RO: NDArray[Any],
        act_R: NDArray[Any],
        obs_next_RO: NDArray[Any],
        rew_R: NDArray[Any],
        terminated_R: NDArray[Any],
        truncated_R: NDArray[Any],
        info: Any,
    ) -> None:
        self.env_ids_R = env_ids_R
        self.obs_RO = obs_RO
        self.act_R = act_R
        self.obs_next_RO = obs_next_RO
        self.rew_R = rew_R
        self.terminated_R = terminated_R
        self.truncated_R = truncated_R
        self.done_R: NDArray[np.bool_] = np.logical_or(terminated_R, truncated_R)
        self.info = info

    def batch(self) -> RolloutBatchProtocol:
        """Give it as Tianshou's buffers take it, without info."""
        arrays = {
            "obs": self.obs_RO,
            "act": self.act_R,
            "rew": self.rew_R,
            "terminated": self.terminated_R,
            "truncated": self.truncated_R,
            "done": self.done_R,
            "obs_next": self.obs_next_RO,
        }
        if self.obs_RO.dtype == object:  # nested observations, to be made batches of
            return cast(RolloutBatchProtocol, Batch(arrays))
        batch = Batch()
        batch.__dict__.update(arrays)  # spares a search for values to convert, longer than a step
        return cast(RolloutBatchProtocol, batch)


Played = Step | NDArray[Any]
"""A step, or the first states of episodes after a reset."""


def _action_batch(act_R: NDArray[Any]) -> CollectActionBatchProtocol:
    """What Tianshou hands to step hooks, for a policy with neither distribution nor state."""
    batch = Batch(
        act=act_R, act_normalized=act_R, policy_entry=Batch(), dist=None, hidden_state=None
    )
    return cast(CollectActionBatchProtocol, batch)
