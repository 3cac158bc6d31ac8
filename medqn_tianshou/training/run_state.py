"""The state of policy, raw replay buffer and trainer, as plain data."""

import time
from typing import Any

import numpy as np
import torch
from tianshou.data import Batch, ReplayBuffer
from tianshou.trainer import OffpolicyTrainer

from medqn_tianshou.algorithm.policy import MeDQNPolicy
from medqn_tianshou.files.generators import generator_state, set_generator_state
from medqn_tianshou.replay import CompactVectorReplayBuffer

State = dict[str, Any]

_TRAINER_FIELDS = (
    "iter_num", "env_step", "env_episode", "_gradient_step", "policy_update_time", "best_score",
    "best_reward", "best_reward_std", "best_epoch", "last_rew", "last_len",
)  # fmt: skip
_PART_FIELDS = ("_insertion_idx", "_size", "_ep_return", "_ep_len", "_ep_start_idx")


def policy_state(policy: MeDQNPolicy) -> State:
    """Return networks, optimizer, learning-rate schedule, counters and the sampler's state."""
    optim = policy.optim.state_dict()
    schedule = policy.lr_scheduler
    return {
        "networks": dict(policy.state_dict()),
        "optimizer": {str(index): dict(entry) for index, entry in optim["state"].items()},
        "lr": [group["lr"] for group in optim["param_groups"]],
        "lr_schedule": None if schedule is None else schedule.state_dict(),
        "gradient_steps": policy.gradient_steps,
        "eps": policy.eps,
        "sampler": policy.state_sampler.state_dict(),
    }


def load_policy_state(policy: MeDQNPolicy, state: State) -> None:
    """Continue from what :func:`policy_state` returned of a policy built the same way."""
    # The values are copied into the parameters: these keep device and memory layout.
    policy.load_state_dict(
        {name: torch.from_numpy(array) for name, array in state["networks"].items()}
    )
    optim = policy.optim
    parameters = [parameter for group in optim.param_groups for parameter in group["params"]]
    entries = {
        int(index): {name: _like(value, parameters[int(index)]) for name, value in entry.items()}
        for index, entry in state["optimizer"].items()
    }
    groups = optim.state_dict()["param_groups"]
    for group, lr in zip(groups, state["lr"], strict=True):
        group["lr"] = float(lr)
    optim.load_state_dict({"state": entries, "param_groups": groups})
    if policy.lr_scheduler is not None:
        policy.lr_scheduler.load_state_dict(state["lr_schedule"])
    policy.set_gradient_steps(int(state["gradient_steps"]))
    policy.set_eps(float(state["eps"]))
    policy.state_sampler.load_state_dict(state["sampler"])


def _like(value: Any, parameter: torch.Tensor) -> Any:
    """Return a value of the optimizer's state; in the parameter's memory layout if of its shape."""
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.from_numpy(value)
    if tensor.shape != parameter.shape:
        if tensor.dim():
            raise ValueError(f"shape {tuple(tensor.shape)} is not that of a parameter")
        return tensor
    return torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor)


def raw_replay_state(buffer: ReplayBuffer) -> State:
    """Return the content of one of Tianshou's vector buffers, and its generators' states."""
    parts: list[Any] = list(buffer.buffers)
    return {
        "maxsize": buffer.maxsize,
        "fields": {
            name: value for name, value in buffer._meta.items() if isinstance(value, np.ndarray)
        },
        "last_index": buffer.last_index,
        "lengths": buffer._lengths,
        "generator": generator_state(buffer._random_state),
        "parts": [
            {
                "last_index": part.last_index,
                "generator": generator_state(part._random_state),
                **{name: getattr(part, name) for name in _PART_FIELDS},
            }
            for part in parts
        ],
    }


def load_raw_replay_state(buffer: ReplayBuffer, state: State) -> None:
    """Continue from what :func:`raw_replay_state` returned of a buffer built the same way.

    The buffer takes over the arrays of the state.
    """
    parts: list[Any] = list(buffer.buffers)
    if state["maxsize"] != buffer.maxsize or len(state["parts"]) != len(parts):
        raise ValueError(f"a buffer of {state['maxsize']} is not one of {buffer.maxsize}")
    if state["fields"]:
        buffer.set_batch(Batch(state["fields"]))  # checks the lengths as well
    buffer.last_index = state["last_index"]
    buffer._lengths = state["lengths"]
    set_generator_state(buffer._random_state, state["generator"])
    for part, saved in zip(parts, state["parts"], strict=True):
        part.last_index = saved["last_index"]
        set_generator_state(part._random_state, saved["generator"])
        for name in _PART_FIELDS:
            setattr(part, name, saved[name])


def close_episodes(buffer: ReplayBuffer) -> None:
    """End the unfinished episodes of a vector buffer, as new episodes follow.

    A compact buffer finds the ends by itself. In Tianshou's buffers, the newest transitions become
    truncated.
    """
    if isinstance(buffer, CompactVectorReplayBuffer):
        for compact_part in buffer.buffers:
            compact_part.clear_statistics()
        return
    for part in buffer.buffers:
        if part._size:
            newest = part.last_index[0]
            if not part._meta.done[newest]:
                part._meta.truncated[newest] = part._meta.done[newest] = True
        part._ep_return, part._ep_len, part._ep_start_idx = 0.0, 0, part._insertion_idx


def trainer_state(trainer: OffpolicyTrainer) -> State:
    """Return what Tianshou's trainer keeps from one training step to the next."""
    return {
        **{name: getattr(trainer, name) for name in _TRAINER_FIELDS},
        "epoch": trainer.epoch,
        "seconds": time.time() - trainer.start_time,
        "averages": {name: list(average.cache) for name, average in trainer.stat.items()},
    }


def load_trainer_state(trainer: OffpolicyTrainer, state: State) -> None:
    """Continue from what :func:`trainer_state` returned; the trainer enters the epoch again."""
    for name in _TRAINER_FIELDS:
        setattr(trainer, name, state[name])
    # Entering an epoch counts it.
    trainer.epoch = int(state["epoch"]) - 1
    trainer.iter_num = int(state["iter_num"]) - 1
    trainer.start_time = time.time() - float(state["seconds"])
    for name, cache in state["averages"].items():
        trainer.stat[name].cache = list(cache)
