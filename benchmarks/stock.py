"""DQN and MeDQN on Tianshou's own classes, as its examples and a plain user write them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from setups import PIXEL_SCALE, Setup
from tianshou.data import Batch, Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.policy import DQNPolicy
from tianshou.policy.modelfree.dqn import DQNTrainingStats
from tianshou.trainer import OffpolicyTrainer
from tianshou.utils import TensorboardLogger
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.tensorboard import SummaryWriter


class StockNetwork(nn.Module):
    """A network in the form Tianshou calls it.

    :param layers: floats in, action values out.
    :param scale: what observations are multiplied with; None leaves them.
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


class RandomBufferStates:
    """States for MeDQN(R): the observations of a second sample of the buffer."""

    def draw(self, count: int, buffer: ReplayBuffer) -> Any:
        """Draw states."""
        return buffer.sample(count)[0].obs


class UniformStates:
    """States for MeDQN(U), uniform within the bounds of all that were seen.

    :param observation_space: tells whether they are whole numbers.
    """

    def __init__(self, observation_space: Any) -> None:
        self._integers = not np.issubdtype(observation_space.dtype, np.floating)
        self._low: Any = np.full(observation_space.shape, np.inf)
        self._high: Any = np.full(observation_space.shape, -np.inf)

    def hook(self, action_batch: Any, rollout_batch: Any) -> None:
        """Take note of a step's states: the collector's ``on_step_hook``."""
        for obs in (rollout_batch.obs, rollout_batch.obs_next):
            self._low = np.minimum(self._low, obs.min(axis=0))
            self._high = np.maximum(self._high, obs.max(axis=0))

    def draw(self, count: int, buffer: ReplayBuffer) -> Any:
        """Draw states."""
        size = (count, *self._low.shape)
        if self._integers:
            return np.random.randint(self._low.astype(int), self._high.astype(int) + 1, size)
        return np.random.uniform(self._low, self._high, size)


class StockMeDQN(DQNPolicy[DQNTrainingStats]):
    """MeDQN on Tianshou's DQN, written without a thought for speed, nor against it.

    :param states: draws the states to consolidate on.
    :param epochs: gradient steps per batch.
    :param coef: weight of the consolidation loss.
    :param max_grad_norm: clips the gradient; 0 does not.
    :param options: as for Tianshou's policy.
    """

    def __init__(
        self,
        *,
        states: RandomBufferStates | UniformStates,
        epochs: int,
        coef: float,
        max_grad_norm: float,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._states = states
        self._epochs = epochs
        self._coef = coef
        self._max_grad_norm = max_grad_norm
        self._replay: ReplayBuffer

    def process_fn(self, batch: Any, buffer: ReplayBuffer, indices: Any) -> Any:
        """Note the buffer, and compute the targets."""
        self._replay = buffer
        return super().process_fn(batch, buffer, indices)

    def learn(self, batch: Any, *args: Any, **kwargs: Any) -> DQNTrainingStats:
        """Take the gradient steps of a batch."""
        for _ in range(self._epochs):
            if self._iter % self.freq == 0:
                self.sync_weight()
            self.optim.zero_grad()
            q = self(batch).logits
            q = q[np.arange(len(q)), batch.act]
            td_loss = F.huber_loss if self.clip_loss_grad else F.mse_loss
            loss = td_loss(q, batch.returns.flatten().to(q))
            states = Batch(obs=self._states.draw(len(batch), self._replay), info=[])
            with torch.no_grad():
                target_q = self(states, model="model_old").logits
            loss = loss + self._coef * F.mse_loss(self(states).logits, target_q)
            loss.backward()  # type: ignore[no-untyped-call]
            if self._max_grad_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), self._max_grad_norm)
            self.optim.step()
            self._iter += 1
        return DQNTrainingStats(loss=loss.item())


class TrainerContestant:
    """A training that one of Tianshou's trainers drives.

    :param trainer: the trainer, whose collector was warmed up.
    """

    def __init__(self, trainer: OffpolicyTrainer) -> None:
        trainer.test_collector = None  # evaluation is not measured
        trainer.save_best_fn = None
        # The end of an epoch comes with every chunk here, in training every 100,000 steps.
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
    """DQN as in Tianshou's examples, or MeDQN on the same classes.

    :param setup: the settings.
    :param folder: where TensorBoard files go.
    """

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
        uniform = UniformStates(setup.spaces[0]) if value.sampling == "uniform" else None
        policy = make_stock_policy(setup, uniform or RandomBufferStates())
        collector: Any = Collector(
            policy,
            envs,
            VectorReplayBuffer(value.buffer_size, len(envs), **options),
            exploration_noise=True,
            on_step_hook=None if uniform is None else uniform.hook,
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


def make_stock_policy(setup: Setup, states: RandomBufferStates | UniformStates) -> DQNPolicy[Any]:
    """Build the policy with the optimizer as torch gives it by default."""
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
    return StockMeDQN(
        states=states,
        epochs=epochs,
        coef=value.lambda_end,
        max_grad_norm=getattr(value, "max_grad_norm", 0.0),
        **options,
    )
