"""The state of policy and trainer as plain data."""

import time
from typing import Any

import numpy as np
import torch

from medqn_tianshou.algorithm.consolidation import EXTRA_STATE
from medqn_tianshou.host.api import Agent
from medqn_tianshou.training.trainer import LeanTrainer

State = dict[str, Any]

_TRAINER_FIELDS = (
    "iter_num", "env_step", "env_episode", "_gradient_step", "policy_update_time", "best_score",
    "best_reward", "best_reward_std", "best_epoch", "last_rew", "last_len",
)  # fmt: skip


def policy_state(policy: Agent) -> State:
    """Return networks, optimizer, learning-rate schedule, counters and the sampler's state."""
    parameters = policy.parameters_by_name()
    del parameters[EXTRA_STATE]  # the counter and the sampler have fields of their own
    optim = policy.torch_optim.state_dict()
    schedule = policy.lr_scheduler
    return {
        "networks": parameters,
        "optimizer": {str(index): dict(entry) for index, entry in optim["state"].items()},
        "lr": [group["lr"] for group in optim["param_groups"]],
        "lr_schedule": None if schedule is None else schedule.state_dict(),
        "gradient_steps": policy.gradient_steps,
        "eps": policy.eps,
        "sampler": policy.state_sampler.state_dict(),
        "coef": None if policy.adaptive_coef is None else policy.adaptive_coef.value,
    }


def load_policy_state(policy: Agent, state: State) -> None:
    """Continue from what :func:`policy_state` returned of a policy built the same way."""
    # The values are copied into the parameters: these keep device and memory layout.
    policy.load_parameters_by_name(
        {name: torch.from_numpy(array) for name, array in state["networks"].items()}
    )
    optim = policy.torch_optim
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
    if policy.adaptive_coef is not None:
        policy.adaptive_coef.load(float(state["coef"]))


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


def trainer_state(trainer: LeanTrainer) -> State:
    """Return what the trainer keeps from one training step to the next."""
    return {
        **{name: getattr(trainer, name) for name in _TRAINER_FIELDS},
        "epoch": trainer.epoch,
        "seconds": time.time() - trainer.start_time,
        "recent_losses": list(trainer.recent_losses),
    }


def load_trainer_state(trainer: LeanTrainer, state: State) -> None:
    """Continue from what :func:`trainer_state` returned; the trainer enters the epoch again."""
    for name in _TRAINER_FIELDS:
        setattr(trainer, name, state[name])
    # Entering an epoch counts it.
    trainer.epoch = int(state["epoch"]) - 1
    trainer.iter_num = int(state["iter_num"]) - 1
    trainer.start_time = time.time() - max(float(state["seconds"]), 0.0)
    trainer.recent_losses.clear()  # of a checkpoint that turned out not to fit
    trainer.recent_losses.extend(state["recent_losses"])
