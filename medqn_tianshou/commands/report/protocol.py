"""The protocol: how the returns of a task were measured, in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medqn_tianshou.algorithm.schedules import LinearSchedule
from medqn_tianshou.commands.report.runs import Metric, RecordedRun
from medqn_tianshou.commands.report.statistics import LEAST_RUNS

FEW_RUNS = 10
"""With fewer runs, bootstrap intervals are rough, and usually too narrow."""
ATARI_LIMIT = 108_000
"""Steps after which an Atari game is truncated."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Where the returns of a task come from; several values are those of different runs."""

    task: str
    metric: Metric
    window: str
    """Training episodes, or evaluations, that a return averages over."""
    episodes: str
    """Episodes per evaluation; 1 in training."""
    epsilon: str
    rewards: str
    episode: str
    """What an episode is."""
    env_steps: str
    compared_at: int
    """The environment step of the returns: the end of the shortest run."""
    runs: str
    seeds: str

    @property
    def _moment(self) -> str:
        at = f"{self.compared_at:,}"
        if self.env_steps == at:
            return f"the end of {at} env steps"
        return f"env step {at}, which all runs reached (they have {self.env_steps})"

    @property
    def measure(self) -> str:
        """The protocol in words, without task and runs."""
        if self.metric == "train":
            averaged = f"training return, mean of the last {self.window} training episodes"
        else:
            averaged = f"evaluation return, mean of {self.episodes} episodes"
            if self.window != "1":
                averaged += f" in each of the last {self.window} evaluations"
        return (
            f"{averaged} at {self._moment}, epsilon {self.epsilon}, {self.rewards}, {self.episode}"
        )


def describe_task(
    task: str,
    groups: Mapping[str, Sequence[RecordedRun]],
    metric: Metric,
    window: int | None,
    compared_at: int,
) -> Protocol:
    """Describe how the returns of a task were measured; ``groups`` are its runs by label."""
    runs = [run for group in groups.values() for run in group]
    atari = runs[0].family == "atari"
    clipped = atari and metric == "train"
    return Protocol(
        task=task,
        metric=metric,
        window=_several(run.window(metric, window) for run in runs),
        episodes=_several(
            1 if metric == "train" else run.value("test_num" if atari else "eval_episodes")
            for run in runs
        ),
        epsilon=_several(_epsilon(run, metric, compared_at) for run in runs),
        rewards="rewards clipped to their sign" if clipped else "rewards not clipped",
        episode="one life an episode" if clipped else _episode(runs),
        env_steps=_several(run.env_steps for run in runs),
        compared_at=compared_at,
        runs=count_runs([len(group) for group in groups.values()]),
        seeds=_several(run.seed for run in runs),
    )


def protocol_lines(protocols: Sequence[Protocol], *, most: int | None = None) -> list[str]:
    """State how returns were measured, a line for all tasks that have it in common.

    More lines than ``most`` are a reference to the table.
    """
    tasks_of: dict[str, list[str]] = {}
    for protocol in protocols:
        text = f"{protocol.measure}; {protocol.runs}"
        tasks_of.setdefault(text, []).append(short_name(protocol.task))
    lines = [f"{', '.join(names)}: {text}." for text, names in tasks_of.items()]
    if most is not None and len(lines) > most:
        kind = {"train": "Training", "eval": "Evaluation"}[protocols[0].metric]
        return [f"{kind} returns; window, epsilon, episodes, steps and seeds are in protocol.csv."]
    return lines


def short_name(task: str) -> str:
    """A task's name without what all Atari games have in common."""
    return task.removesuffix("NoFrameskip-v4")


def count_runs(counts: Sequence[int]) -> str:
    """Describe how many runs each algorithm has, with a warning if they are few."""
    low, high = min(counts), max(counts)
    text = f"{low} to {high}" if low < high else str(low)
    text += " run" if high == 1 else " runs"
    if len(counts) > 1:
        text += " each"
    if high < LEAST_RUNS:
        return f"{text}: no interval"
    if low < LEAST_RUNS:
        text += f": no interval of fewer than {LEAST_RUNS} runs"
        return f"{text}; the others are rough" if high < FEW_RUNS else text
    return f"{text}: intervals are rough" if low < FEW_RUNS else text


def _epsilon(run: RecordedRun, metric: Metric, env_step: int) -> float:
    if metric == "eval":
        return float(run.value("eps_test"))
    names = ("eps_train", "eps_train_final", "eps_decay_steps")
    return round(LinearSchedule(*map(run.value, names))(env_step), 4)


def _episode(runs: Sequence[RecordedRun]) -> str:
    if runs[0].family == "atari":
        return f"whole games of at most {ATARI_LIMIT:,} steps"
    limits = _several(run.value("max_episode_steps") or "no" for run in runs)
    return "episodes not truncated" if limits == "no" else f"episodes truncated at {limits} steps"


def _several(values: Iterable[Any]) -> str:
    """Write different values once each, and whole numbers without a gap as a range."""
    found = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    whole = all(isinstance(value, int) for value in found)
    if whole and len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    return " or ".join(f"{v:,}" if isinstance(v, int) else f"{v}".removesuffix(".0") for v in found)
