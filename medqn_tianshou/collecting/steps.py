"""One step of a vector environment, as collectors pass it on."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tianshou.data import Batch, CollectStats
from tianshou.data.collector import CollectActionBatchProtocol
from tianshou.data.types import RolloutBatchProtocol


class Step:
    """The result of one action in some of the environments."""

    __slots__ = (
        "act_R", "done_R", "env_act_R", "env_ids_R", "info", "obs_RO", "obs_next_RO", "rew_R",
        "terminated_R", "truncated_R",
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
        *,
        env_act_R: NDArray[Any] | None = None,
    ) -> None:
        self.env_ids_R = env_ids_R
        self.obs_RO = obs_RO
        self.act_R = act_R
        self.env_act_R = act_R if env_act_R is None else env_act_R
        self.obs_next_RO = obs_next_RO
        self.rew_R = rew_R
        self.terminated_R = terminated_R
        self.truncated_R = truncated_R
        self.done_R: NDArray[np.bool_] = np.logical_or(terminated_R, truncated_R)
        self.info = info

    @property
    def rewards(self) -> list[Any]:
        """The reward of each environment: a number, or an array where rewards are vectors."""
        rew_R = self.rew_R
        return rew_R.tolist() if rew_R.ndim == 1 else list(rew_R)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields of the transitions, without info."""
        return {
            "obs": self.obs_RO,
            "act": self.act_R,
            "rew": self.rew_R,
            "terminated": self.terminated_R,
            "truncated": self.truncated_R,
            "done": self.done_R,
            "obs_next": self.obs_next_RO,
        }

    def batch(self) -> RolloutBatchProtocol:
        """Return the transitions in the form that Tianshou's buffers take, without info."""
        arrays = self.arrays()
        if self.obs_RO.dtype == object:  # nested observations, which Batch converts
            return cast(RolloutBatchProtocol, Batch(arrays))
        batch = Batch()
        batch.__dict__.update(arrays)  # a search for values to convert is slower than a step
        return cast(RolloutBatchProtocol, batch)


def action_batch(step: Step) -> CollectActionBatchProtocol:
    """Return what Tianshou passes to step hooks, for a policy without distribution and state."""
    batch = Batch(
        act=step.act_R,
        act_normalized=step.env_act_R,
        policy_entry=Batch(),
        dist=None,
        hidden_state=None,
    )
    return cast(CollectActionBatchProtocol, batch)


def collect_stats(steps: int, ended: Sequence[tuple[Any, int]]) -> CollectStats:
    """Return the statistics of a collect, from returns and lengths of the episodes that ended."""
    if not ended:
        return CollectStats(n_collected_steps=steps)
    returns, lengths = zip(*ended, strict=True)
    return CollectStats(
        n_collected_episodes=len(ended),
        n_collected_steps=steps,
        returns=np.array(returns, dtype=float),
        lens=np.array(lengths, dtype=int),
    )
