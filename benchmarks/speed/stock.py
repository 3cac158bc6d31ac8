"""DQN and MeDQN on Tianshou's own collector and buffer, as its examples and a plain user do."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.policy import DQNPolicy
from tianshou.trainer import OffpolicyTrainer
from tianshou.utils import TensorboardLogger
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from benchmarks.setups import PIXEL_SCALE, Setup
from medqn_tianshou import MeDQNPolicy
from medqn_tianshou.algorithm.samplers import make_state_sampler


class StockNetwork(nn.Module):
    """A network with the interface that Tianshou expects.

    :param layers: maps floats to action values.
    :param scale: factor on the observations, if any.
    """

    def __init__(self, layers: nn.Module, *, scale: float | None) -> None:
        super().__init__()
        self.layers = layers
        self._scale = scale

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        """Return action values and the state as it came."""
        floats = torch.as_tensor(obs, dtype=torch.float32)
        if self._scale is not None:
            floats = floats * self._scale
        return self.layers(floats), state


class TrainerContestant:
    """A training that one of Tianshou's trainers drives.

    :param trainer: the trainer, whose collector was warmed up.
    """

    def __init__(self, trainer: OffpolicyTrainer) -> None:
        trainer.test_collector = None  # evaluation is not measured
        trainer.save_best_fn = None
        # An epoch ends with every chunk here, but only every 100,000 steps in training.
        trainer.save_checkpoint_fn = None
        trainer.max_epoch = sys.maxsize
        trainer.reset(reset_collectors=False)
        self.trainer = trainer

    def advance(self, env_steps: int) -> None:
        """Train for some environment steps."""
        self.trainer.step_per_epoch = env_steps
        next(self.trainer)

    def update(self) -> None:
        """Update the policy once."""
        collector: Any = self.trainer.train_collector
        with policy_within_training_step(self.trainer.policy):
            self.trainer.policy.update(self.trainer.batch_size, collector.buffer)

    def close(self) -> None:
        """Free the environments and the log files."""
        collector: Any = self.trainer.train_collector
        logger: Any = self.trainer.logger
        collector.env.close()
        logger.writer.close()


class Stock(TrainerContestant):
    """DQN as in Tianshou's examples, or MeDQN on the same classes."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        value = setup.value
        torch.manual_seed(setup.value.seed)
        np.random.seed(setup.value.seed)
        envs = setup.make_vector_envs()
        atari = setup.is_atari
        options: dict[str, Any] = (
            {"stack_num": value.frames_stack, "ignore_obs_next": True, "save_only_last_obs": True}
            if atari
            else {}
        )
        policy = make_stock_policy(setup)
        observes = setup.consolidates and value.sampling == "uniform"
        collector: Any = Collector(
            policy,
            envs,
            VectorReplayBuffer(value.buffer_size, len(envs), **options),
            exploration_noise=True,
            on_step_hook=policy.observe_step if observes else None,
        )
        collector.reset()
        collector.collect(n_step=value.warmup_steps, random=True)
        super().__init__(
            OffpolicyTrainer(
                policy=policy,
                train_collector=collector,
                test_collector=None,
                max_epoch=1,
                step_per_epoch=1,
                step_per_collect=value.step_per_collect,
                episode_per_test=1,
                update_per_step=1 / value.step_per_collect,
                batch_size=0 if setup.whole_buffer else value.batch_size,
                train_fn=lambda epoch, env_step: policy.set_eps(setup.epsilon),
                logger=TensorboardLogger(SummaryWriter(str(folder))),
                verbose=False,
                show_progress=False,
                test_in_train=False,
            )
        )


def make_stock_policy(setup: Setup) -> Any:
    """Build Tianshou's DQN or our plain MeDQN, with the optimizer as torch gives it by default."""
    value = setup.value
    observation_space, action_space = setup.spaces
    scale = PIXEL_SCALE if setup.is_atari and value.scale_obs else None
    network = StockNetwork(setup.make_plain_network(), scale=scale)
    optim: torch.optim.Optimizer = (
        torch.optim.RMSprop(network.parameters(), lr=value.lr, alpha=0.95, eps=0.01, centered=True)
        if getattr(value, "optimizer", "adam") == "rmsprop-centered"
        else torch.optim.Adam(network.parameters(), lr=value.lr)
    )
    epochs = value.consolidation_epochs
    updates_per_target = setup.target_update_env_steps * epochs / value.step_per_collect
    options: dict[str, Any] = {
        "model": network,
        "optim": optim,
        "action_space": action_space,
        "observation_space": observation_space,
        "discount_factor": value.gamma,
        "estimation_step": value.n_step,
        "target_update_freq": max(round(updates_per_target), 1),
        "is_double": value.double,
        "clip_loss_grad": value.huber,
    }
    if not setup.consolidates:
        return DQNPolicy(**options)
    return MeDQNPolicy(
        state_sampler=make_state_sampler(
            value.sampling, observation_space=observation_space, seed=setup.value.seed
        ),
        consolidation_epochs=epochs,
        consolidation_coef=value.lambda_end,
        max_grad_norm=getattr(value, "max_grad_norm", 0.0) or None,
        **options,
    )
