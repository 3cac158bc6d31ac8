"""Collecting the steps of one environment for a ring buffer, without an array around each value."""

from typing import Any

import numpy as np
from tianshou.data import CollectStats

from medqn_tianshou.replay.ring import RingReplayBuffer

_OF_ONE_ENV = {"play_alone", "step"}
"""What a vector of one environment defines, such as ``SingleVectorEnv``."""


def suits_alone(collector: Any) -> bool:
    """Whether :func:`take_alone` collects what a ``LeanCollector`` would collect now."""
    env, buffer, obs_RO = collector.env, collector.buffer, collector._pre_collect_obs_RO
    return (
        vars(type(env)).keys() >= _OF_ONE_ENV  # not a subclass that steps differently
        and type(buffer) is RingReplayBuffer
        and collector._actor is not None
        and collector._on_step_hook is None
        and "step" not in vars(env)
        and obs_RO is not None
        and buffer.takes(obs_RO)
    )


def take_alone(collector: Any, n_step: int) -> CollectStats:
    """Play some steps, store them, and count, as a ``LeanCollector`` does."""
    env, act, on_states = collector.env, collector._actor, collector._on_states
    play, append = env.play_alone, collector.buffer.append
    returns, lengths = collector._episode_return, collector._episode_length
    obs_RO = collector._pre_collect_obs_RO
    ended: list[tuple[float, int]] = []
    for step in range(1, n_step + 1):
        action = int(act(obs_RO)[0])  # numpy's integers slow down an environment's arithmetic
        obs, reward, terminated, truncated, _ = play(action)
        obs_next_RO = np.array([obs])
        if on_states is not None:
            on_states(obs_RO)
        done = bool(terminated or truncated)
        append(
            {
                "obs": obs_RO[0],
                "act": action,
                "rew": reward,
                "terminated": terminated,
                "truncated": truncated,
                "done": done,
                "obs_next": obs_next_RO[0],
            }
        )
        returns[0] += float(reward)
        lengths[0] += 1
        if done:
            ended.append(collector._end_episode(0, step))
            collector._resets_E += 1
            obs_next_RO = env.reset()[0]
        obs_RO = obs_next_RO
    collector._pre_collect_obs_RO = obs_RO
    stats: CollectStats = collector._count(n_step, ended)
    return stats
