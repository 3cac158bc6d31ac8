"""The trainer and the logger of Tianshou 2.0, by the names that they have in 1.2."""

from dataclasses import asdict
from operator import attrgetter
from typing import Any

from tianshou.data import CollectStats, ReplayBuffer
from tianshou.trainer import OffPolicyTrainer, OffPolicyTrainerParams
from tianshou.utils import TensorboardLogger


def named(path: str) -> Any:
    """Make a property of an attribute that has another name in Tianshou 2."""
    *parents, name = path.split(".")

    def owner(thing: Any) -> Any:
        return attrgetter(".".join(parents))(thing) if parents else thing

    return property(
        lambda self: getattr(owner(self), name),
        lambda self, value: setattr(owner(self), name, value),
    )


class _Epoch(OffPolicyTrainer._TrainingStepResult):
    """All training steps of an epoch, which were counted and logged one by one."""

    def get_collect_stats(self) -> None:
        return None

    def get_env_step_advancement(self) -> int:
        return 0

    def get_steps_in_epoch_advancement(self) -> int:
        return self._collect_stats.n_collected_steps


_RENAMED = {
    "max_epoch": "max_epochs",
    "step_per_epoch": "epoch_num_steps",
    "step_per_collect": "collection_step_num_env_steps",
    "update_per_step": "update_step_num_gradient_steps_per_sample",
    "episode_per_test": "test_step_num_episodes",
    "train_collector": "training_collector",
    "train_fn": "training_fn",
    "test_in_train": "test_in_training",
}


class Trainer(OffPolicyTrainer):
    """Tianshou's OffPolicyTrainer by the names of 1.2, for a subclass with a ``training_step``."""

    policy = named("algorithm")
    logger = named("_logger")
    epoch = iter_num = named("_epoch")
    env_step = named("_env_step")
    env_episode = named("_env_episode")
    _gradient_step = named("_current_update_step")
    start_time = named("_start_time")
    policy_update_time = named("_policy_update_time")
    best_score = named("_best_score")
    best_reward = named("_best_reward")
    best_reward_std = named("_best_reward_std")
    best_epoch = named("_best_epoch")
    batch_size = named("params.batch_size")
    save_best_fn = named("params.save_best_fn")
    step_per_epoch = named("params.epoch_num_steps")
    step_per_collect = named("params.collection_step_num_env_steps")
    update_per_step = named("params.update_step_num_gradient_steps_per_sample")
    train_collector = named("params.training_collector")

    def __init__(self, *, policy: Any, **options: Any) -> None:
        params = {_RENAMED.get(name, name): value for name, value in options.items()}
        super().__init__(policy, OffPolicyTrainerParams(**params))
        self.last_rew = self.last_len = 0.0

    def reset(self, reset_collectors: bool = True, reset_buffer: bool = False) -> None:
        """Start from step 0, with an evaluation."""
        super().reset(reset_collectors, reset_collector_buffers=reset_buffer)

    def __next__(self) -> Any:
        """Run an epoch."""
        return self.execute_epoch()

    def test_step(self) -> tuple[CollectStats, bool]:
        """Evaluate; the first time, the score is the best so far."""
        return super()._test_step(force_update_best=self.best_epoch < 0)

    def _test_step(
        self, force_update_best: bool = False, log_msg_prefix: str | None = None
    ) -> tuple[CollectStats, bool]:
        if force_update_best:  # from reset
            return super()._test_step(True, log_msg_prefix)
        return self.test_step()

    def training_step(self) -> tuple[Any, Any, bool]:
        """Collect and update, for a whole epoch."""
        raise NotImplementedError

    def policy_update_fn(self, collect_stats: Any) -> Any:
        """Update as often as the collected steps ask for."""
        return self._update_step(collect_stats)

    def _training_step(self) -> _Epoch:
        self._gradient_step -= 1  # one more for each training step: here it counts updates
        return _Epoch(*self.training_step())

    def _create_epoch_pbar_data_dict(self, training_step_result: Any) -> dict[str, str]:
        return {}

    def _sample_and_update(self, buffer: ReplayBuffer) -> Any:
        self._gradient_step += 1
        return super()._sample_and_update(buffer)

    def _collect_training_data(self) -> CollectStats:
        """Collect, count and log as 1.2 does; without ``hasnull``, which reads the whole buffer."""
        self.params.training_fn(self.epoch, self.env_step)
        collected = self.train_collector.collect(n_step=self.step_per_collect)
        self.env_step += collected.n_collected_steps
        self.env_episode += collected.n_collected_episodes
        if collected.n_collected_episodes > 0:
            self.last_rew = collected.returns_stat.mean
            self.last_len = collected.lens_stat.mean
            self.logger.log_train_data(asdict(collected), self.env_step)
        return collected


class Logger(TensorboardLogger):
    """Tianshou's TensorBoard logger, which writes the tags of 1.2."""

    train_interval = named("training_interval")
    last_log_train_step = named("last_log_training_step")

    def __init__(self, writer: Any, *, train_interval: int, **options: Any) -> None:
        super().__init__(writer, training_interval=train_interval, save_interval=1, **options)

    def log_train_data(self, log_data: dict[str, Any], step: int) -> None:
        """Log a collect."""
        self.log_training_data(log_data, step)

    def write(self, step_type: str, step: int, data: dict[str, Any]) -> None:
        """Write values with their tags."""
        scope, _, clock = step_type.partition("/")
        named_data = {_TAGS.get(tag, tag): value for tag, value in data.items()}
        super().write(f"{_TAGS.get(scope, scope)}/{_TAGS.get(clock, clock)}", step, named_data)


_TAGS = {"training": "train", "update_step": "gradient_step"}
