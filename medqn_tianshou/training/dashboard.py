"""The TensorBoard page of a run: layout of the custom scalars, probe states, HParams tab."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard.summary import hparams

from medqn_tianshou.algorithm.networks import action_values
from medqn_tianshou.algorithm.samplers import ObservationBuffer, Observations, RealStateSampler
from medqn_tianshou.host.api import Agent
from medqn_tianshou.replay.reservoir import ReservoirStateSampler
from medqn_tianshou.training.memory import MB

PROBE_STATES = 64
"""Two passes over these cost the time of one update, every thousand environment steps."""


def _chart(*tags: str) -> list[Any]:
    return ["Multiline", list(tags)]


LAYOUT = {
    "learning": {
        # Two charts: training episodes of Atari are lives with clipped rewards.
        "training return, mean of the last episodes": _chart("train/return"),
        "evaluation return": _chart("test/returns_stat/mean"),
        "loss: TD, consolidation": _chart("update/td_loss", "update/consolidation_loss"),
        "lambda": _chart("train/consolidation_coef"),
        "drift on the consolidation states": _chart("update/consolidation_drift"),
        "epsilon": _chart("train/epsilon"),
    },
    "Q values on the probe states": {
        "scale: mean and largest": _chart("probe/q_mean", "probe/q_abs_max"),
        "drift from the target network": _chart("probe/target_drift"),
        "churn of the greedy action": _chart("probe/churn"),
    },
    "speed": {
        "environment steps/s": _chart("speed/env_steps_per_s"),
        "gradient steps/s": _chart("speed/gradient_steps_per_s"),
    },
    "memory": {
        "process, MB": _chart("memory/rss_mb", "memory/peak_rss_mb", "memory/children_rss_mb"),
        "replay buffer, MB": _chart("memory/buffer_mb"),
        "reservoir of states, MB": _chart("memory/state_buffer_mb"),
        "CUDA, MB": _chart("memory/cuda_mb", "memory/peak_cuda_mb"),
    },
}
"""The tab Custom Scalars: categories, their charts, and the tags of each chart."""


class Probe:
    """Evaluates the networks on states of the replay buffer.

    Changes of their greedy actions show what is learned or forgotten, as in Figure 2 of the paper.
    The states are sampled as soon as the buffer has enough, and again whenever the number of steps
    has doubled, at least after every twentieth of the run, because early states differ from later
    ones. They have their own generator, which leaves the run itself unchanged.

    :param env_steps: the length of the run.
    :param size: how many states, or the size of the buffer if that is smaller.
    """

    def __init__(
        self, buffer: ObservationBuffer, *, env_steps: int, size: int = PROBE_STATES
    ) -> None:
        self._buffer = buffer
        self._longest_use = max(env_steps // 20, 1)
        self._next_sample = 0
        maxsize: int = getattr(buffer, "maxsize", size)
        self._size = min(size, maxsize)
        self._states: Observations | None = None
        self._greedy_B: NDArray[np.int64] | None = None

    @torch.no_grad()
    def measure(self, policy: Agent, env_step: int) -> dict[str, float]:
        """Measure the Q network on the probe states, if there are any yet.

        New states are sampled after the measurement: the churn compares the same states.

        :return: ``q_mean``, the mean value of the best action; ``q_abs_max``, the largest absolute
            value of any; ``target_drift``, the root mean square distance to the target network;
            ``churn``, from the second time on: the share of states whose best action has changed.
        """
        if self._states is None:
            if len(self._buffer) < self._size:
                return {}
            self._sample(env_step)
        states: Any = self._states
        q_BA = action_values(policy.model, states)
        target_q_BA = action_values(policy.model_old, states)
        values = {
            "q_mean": q_BA.max(dim=1).values.mean().item(),
            "q_abs_max": q_BA.abs().max().item(),
            "target_drift": (q_BA - target_q_BA).pow(2).mean().sqrt().item(),
        }
        greedy_B = q_BA.argmax(dim=1).cpu().numpy()
        if self._greedy_B is not None:
            values["churn"] = float((greedy_B != self._greedy_B).mean())
        self._greedy_B = greedy_B
        if env_step >= self._next_sample:
            self._sample(env_step)
            states = self._states
            new_q_BA = action_values(policy.model, states)
            self._greedy_B = new_q_BA.argmax(dim=1).cpu().numpy()
        return values

    def _sample(self, env_step: int) -> None:
        self._states = RealStateSampler(seed=env_step).sample(self._size, self._buffer)
        self._next_sample = env_step + min(max(env_step, 1), self._longest_use)

    def state_dict(self) -> dict[str, Any]:
        """Return the states and their last greedy actions; a resumed run keeps its probe."""
        states = None if self._states is None else np.asarray(self._states)
        return {"states": states, "greedy": self._greedy_B, "next_sample": self._next_sample}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned."""
        self._states, self._greedy_B = state["states"], state["greedy"]
        self._next_sample = int(state.get("next_sample", 0))  # earlier versions have none


def policy_figures(policy: Agent) -> dict[str, float]:
    """Return the figures of a policy's consolidation: lambda, and the size of a reservoir.

    :return: values by their tags.
    """
    figures = {"train/consolidation_coef": policy.consolidation_coef}
    sampler = policy.state_sampler
    if isinstance(sampler, ReservoirStateSampler):
        figures["memory/state_buffer_mb"] = sampler.nbytes / MB
        figures["memory/state_buffer_states"] = len(sampler)
    return figures


METRICS = (
    "train/return", "test/returns_stat/mean", "speed/env_steps_per_s", "memory/peak_rss_mb",
    "memory/buffer_mb",
)  # fmt: skip
"""The tags whose last values the HParams tab shows beside the settings."""


def write_hparams(writer: Any, folder: Path) -> None:
    """Write a run's settings for the HParams tab.

    :param folder: the run's folder.
    """
    if not (folder / "config.json").exists():  # a training built by hand has none
        return
    config = json.loads((folder / "config.json").read_text())
    values = {name: entry["value"] for name, entry in config["settings"].items()}
    values |= {name: config[name] for name in ("task", "algo", "seed", "device")}
    plain = {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in values.items()
    }
    # Of the metrics, only the names are written here: TensorBoard looks their values up.
    for summary in hparams(plain, dict.fromkeys(METRICS)):  # type: ignore[no-untyped-call]
        writer.file_writer.add_summary(summary)
