"""The schema of a checkpoint's state: what a run of these settings can have saved.

Environments, samplers and schedules of the learning rate check their own states as they load them.
"""

from math import ceil
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.data import ReplayBuffer

from medqn_tianshou.algorithm.consolidation import EXTRA_STATE
from medqn_tianshou.collecting.lean import LeanCollector
from medqn_tianshou.collecting.overlapping import OverlappingCollector
from medqn_tianshou.files.generators import check_generator_state
from medqn_tianshou.files.schema import (
    MOST,
    Check,
    anything,
    array,
    check_at,
    fields,
    flag,
    items,
    list_of,
    mapping,
    number,
    one_of,
    optional,
    require,
    whole,
)
from medqn_tianshou.host.api import Agent
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.ring import RingReplayBuffer
from medqn_tianshou.training.memory_plan import example_transitions
from medqn_tianshou.training.settings import TrainingSettings

_LARGEST = float(np.finfo(np.float64).max)
_SECONDS = number(0)
_OPTIMIZER_NAMES = {
    torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
    torch.optim.RMSprop: {"step", "square_avg"},
}


def state_schema(
    settings: TrainingSettings,
    policy: Agent,
    train_collector: LeanCollector,
    test_collector: LeanCollector | None,
) -> Check:
    """Describe the states that :meth:`Training.state_dict` can return for these settings."""
    buffer = train_collector.buffer
    compact = isinstance(buffer, CompactVectorReplayBuffer)
    evaluations = settings.total_env_steps // settings.env_steps_per_epoch + 3
    most_resets = evaluations * (settings.episodes_per_evaluation + 2)
    return fields(
        {
            "policy": _policy(policy),
            "trainer": _trainer(settings),
            "train_collector": _collector(train_collector, MOST),
            "test_collector": (
                one_of(None) if test_collector is None else _collector(test_collector, most_resets)
            ),
            "raw_replay": one_of(None) if compact else _raw_replay(settings, train_collector),
            "logger": _logger(settings, train_collector),
            "logs": mapping(whole()),
            "random": _RANDOM,
            "evaluation_random": check_generator_state,
        }
    )


def _finite(dtype: Any, *shape: int | None) -> Check:
    """Allow arrays without infinities."""
    return array(dtype, *shape, at_least=-_LARGEST, at_most=_LARGEST)


def _policy(policy: Agent) -> Check:
    networks = {
        name: _finite(str(tensor.dtype).removeprefix("torch."), *tensor.shape)
        for name, tensor in policy.parameters_by_name().items()
        if name != EXTRA_STATE
    }
    return fields(
        {
            "networks": fields(networks),
            "optimizer": _optimizer(policy.torch_optim),
            "lr": list_of(number(0), len(policy.torch_optim.param_groups)),
            "lr_schedule": one_of(None) if policy.lr_scheduler is None else anything,
            "gradient_steps": whole(),
            "eps": number(0, 1),
            "sampler": anything,
        },
        others=("coef",),  # older checkpoints have none
    )


def _optimizer(optim: torch.optim.Optimizer) -> Check:
    """Allow the state of no parameter yet, or of all."""
    parameters = [parameter for group in optim.param_groups for parameter in group["params"]]
    known = next((n for kind, n in _OPTIMIZER_NAMES.items() if isinstance(optim, kind)), set())
    if known and optim.param_groups[0].get("centered"):
        known = known | {"grad_avg"}

    def entry(shape: tuple[int, ...]) -> Check:
        scalar, like_parameter = _finite(None), _finite(None, *shape)

        def check(value: Any) -> None:
            require(isinstance(value, dict) and (not known or value.keys() == known), value)
            for name, item in value.items():
                (scalar if name == "step" else like_parameter)(item)
            require("step" not in value or bool(value["step"] >= 0), value)

        return check

    whole_state = fields({str(i): entry(tuple(p.shape)) for i, p in enumerate(parameters)})
    return lambda value: None if value == {} else whole_state(value)


def _trainer(settings: TrainingSettings) -> Check:
    counts = ("iter_num", "env_episode", "_gradient_step", "epoch")
    numbers = (
        "best_score", "best_reward", "best_reward_std", "last_rew", "last_len",
        "policy_update_time", "seconds",  # negative where the system's clock was set back
    )  # fmt: skip
    return fields(
        {
            "best_epoch": whole(-1),  # -1: only the untrained policy was evaluated
            **dict.fromkeys(counts, whole()),
            **dict.fromkeys(numbers, number()),
            "env_step": whole(0, settings.total_env_steps),
            "recent_losses": list_of(mapping(number()), at_most=1000),
        }
    )


def _space(collector: LeanCollector) -> gym.Space[Any]:
    space: gym.Space[Any] = collector.env.observation_space[0]
    return space


def _last_action(collector: LeanCollector) -> int:
    space: Any = collector.env.action_space[0]
    return int(getattr(space, "n", MOST)) - 1


def _observations(collector: LeanCollector, count: int | None) -> Check:
    space = _space(collector)
    return anything if space.shape is None else _finite(space.dtype, count, *space.shape)


def _collector(collector: LeanCollector, most_resets: int) -> Check:
    count = collector.env_num
    checks = {
        "clocks": items(whole(), whole(), number()),  # as Tianshou takes the time
        "episode_return": list_of(number(), count),
        "episode_length": list_of(whole(), count),
        "resets": array(np.int64, count, at_least=0, at_most=most_resets),
        "obs": optional(_observations(collector, None)),
        "envs": anything,
    }
    if isinstance(collector, OverlappingCollector):
        checks["ahead"] = optional(_ahead(collector))
    stores = collector._stores

    def check(value: Any) -> None:
        fields(checks)(value)
        require(not stores or len(value["obs"]) == count, value["obs"])

    return check


def _ahead(collector: LeanCollector) -> Check:
    """Allow steps that were played ahead in all environments."""
    count = collector.env_num
    flags, obs = array(np.bool_, count), _observations(collector, count)
    step = fields(
        {
            "env_ids_R": array(np.int64, count, at_least=0, at_most=count - 1),
            "obs_RO": obs,
            "obs_next_RO": obs,
            "act_R": array(np.int64, count, at_least=0, at_most=_last_action(collector)),
            "rew_R": _finite(None, count),
            "terminated_R": flags,
            "truncated_R": flags,
        }
    )

    def check(value: Any) -> None:
        fields({"n_step": whole(1), "played": list_of(step)})(value)
        require(len(value["played"]) == ceil(value["n_step"] / count), value["n_step"])

    return check


def _raw_replay(settings: TrainingSettings, collector: LeanCollector) -> Check:
    """Allow the state of Tianshou's buffer for transitions of these environments."""
    buffer: ReplayBuffer = collector.buffer
    count, size = collector.env_num, buffer.maxsize
    part_size = size // count
    probe = RingReplayBuffer(count, count, **settings.buffer_options)
    probe.add(example_transitions(_space(collector), count))
    stored = {
        name: _finite(None if name == "rew" else value.dtype, size, *value.shape[1:])
        for name, value in probe._meta.items()
        if isinstance(value, np.ndarray)
    }
    stored["act"] = array(np.int64, size, at_least=0, at_most=_last_action(collector))
    transitions = fields(stored)
    part = fields(
        {
            "last_index": array(np.int64, 1, at_least=0, at_most=part_size - 1),
            "generator": check_generator_state,
            "_insertion_idx": whole(0, part_size - 1),
            "_size": whole(1, part_size),
            "_ep_return": number(),
            "_ep_len": whole(),
            "_ep_start_idx": whole(0, part_size - 1),
        }
    )
    whole_state = fields(
        {
            "maxsize": one_of(size),
            "fields": transitions,
            "last_index": array(np.int64, count, at_least=0, at_most=size - 1),
            "lengths": array(np.int64, count, at_least=1, at_most=part_size),
            "generator": check_generator_state,
            "parts": list_of(part, count),
        }
    )

    def check(value: Any) -> None:
        whole_state(value)
        sizes = [part["_size"] for part in value["parts"]]
        require(value["lengths"].tolist() == sizes, sizes)

    return check


def _logger(settings: TrainingSettings, collector: LeanCollector) -> Check:
    step = whole(-MOST)
    names = ("train", "test", "update", "info")
    last = {**{f"last_log_{name}_step": step for name in names}, "last_save_step": step}
    probe = {
        "states": optional(_observations(collector, None)),
        "greedy": optional(array(np.int64, None)),
    }
    checks = fields(
        {
            "last": fields(last),
            "env_step": step,
            "cap_is_known": flag,
            "train_epsilon": number(0, 1),
            "next_row": step,
            "last_row": items(step, _SECONDS),
            "next_clock_log": step,
            "last_speed": items(step, step, _SECONDS),
            "train_seconds": _SECONDS,
            "train_returns": list_of(number(), at_most=settings.return_window),
            "probe": fields(probe, others=("next_sample",)),  # older checkpoints have none
            "wandb": optional(fields({"row": mapping(number()), "row_step": step})),
        },
        others=("cpu_seconds", "peak_rss"),  # older checkpoints have none
    )

    def check(value: Any) -> None:
        checks(value)
        check_at("cpu_seconds", _SECONDS, value.get("cpu_seconds", 0.0))
        check_at("peak_rss", whole(), value.get("peak_rss", 0))
        check_at("next_sample", whole(), value["probe"].get("next_sample", 0))
        states, greedy = value["probe"]["states"], value["probe"]["greedy"]
        require(greedy is None or (states is not None and len(states) == len(greedy)), greedy)

    return check


_RANDOM = fields(
    {
        "python": items(one_of(3), array(np.uint32, 625), optional(number())),
        "numpy": check_generator_state,
        "torch": array(np.uint8, None),
        "cuda": list_of(array(np.uint8, None), at_most=1024),
    }
)
