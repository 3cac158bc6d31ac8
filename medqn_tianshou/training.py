"""Runs Tianshou's OffpolicyTrainer with a progress bar, a run folder and a summary."""

import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tianshou.policy import BasePolicy
from tianshou.trainer import OffpolicyTrainer
from tianshou.utils import TensorboardLogger
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from medqn_tianshou.collector import LeanCollector
from medqn_tianshou.memory import MB, MemoryMonitor, MemoryUsage, format_bytes
from medqn_tianshou.policy import MeDQNPolicy
from medqn_tianshou.run_folder import ProgressRow, RunFolder
from medqn_tianshou.schedules import Schedule

LOG_EVERY_ENV_STEPS = 1000
_BAR_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a run ended; also ``summary.json``."""

    status: str
    """``finished``, ``interrupted`` (Ctrl-C) or ``failed``."""
    env_steps: int
    gradient_steps: int
    best_return: float | None
    best_env_step: int | None
    final_return: float | None
    steps_per_s: float | None
    """Training speed over the whole run, evaluation excluded."""
    peak_rss_mb: float
    buffer_mb: float

    def text(self, folder: str) -> str:
        """Write the summary for people.

        :param folder: where the run's files are.
        """
        at_step = "" if self.best_env_step is None else f" at env step {self.best_env_step:,}"
        lines = [
            f"{self.status} after {self.env_steps:,} env steps, {self.gradient_steps:,} gradient "
            f"steps",
            f"  best return   {_number(self.best_return)}{at_step}",
            f"  final return  {_number(self.final_return)}",
            f"  speed         {_number(self.steps_per_s)} steps/s",
            f"  peak RSS      {self.peak_rss_mb:.1f} MB",
            f"  replay buffer {self.buffer_mb:.1f} MB",
            f"  files         {folder}",
        ]
        return "\n".join(lines)


class RunLogger(TensorboardLogger):
    """Tianshou's TensorBoard logger, and beside it the bar, ``progress.csv`` and memory.

    :param run: the run's folder.
    :param policy: the policy in training.
    :param monitor: measures memory.
    :param total_env_steps: the length of the run.
    :param show_progress: whether to draw the bar.
    """

    def __init__(
        self,
        *,
        run: RunFolder,
        policy: MeDQNPolicy,
        monitor: MemoryMonitor,
        total_env_steps: int,
        show_progress: bool = True,
    ) -> None:
        super().__init__(
            SummaryWriter(str(run.path)),
            train_interval=LOG_EVERY_ENV_STEPS,
            update_interval=LOG_EVERY_ENV_STEPS // 10,
            write_flush=False,
        )
        # Tianshou's logger would pass over everything before the first interval is full.
        self.last_log_train_step = -self.train_interval
        self.last_log_update_step = -self.update_interval
        self.run = run
        self.policy = policy
        self.monitor = monitor
        self.env_step = 0
        self.train_seconds = 0.0
        self._row_start = (0, 0.0)  # env step and training seconds at the last row
        self._train_returns: list[float] = []
        self._training_since: float | None = None
        self._next_memory_log = 0
        self._bar = tqdm(
            total=total_env_steps,
            unit=" steps",
            desc="warm-up",
            dynamic_ncols=True,
            mininterval=_BAR_SECONDS if sys.stderr.isatty() else 30.0,
            disable=not show_progress,
        )
        self._next_bar_update = 0.0

    def before_collect(self, env_step: int) -> None:
        """Take note of the time and refresh the bar; to be called in ``train_fn``."""
        self.env_step = env_step
        now = time.perf_counter()
        if self._training_since is None:
            self._training_since = now
        if env_step >= self._next_memory_log:
            self._next_memory_log = env_step + LOG_EVERY_ENV_STEPS
            self.log_clocks()
        if now >= self._next_bar_update:
            self._next_bar_update = now + _BAR_SECONDS
            self._refresh_bar("training")

    def before_evaluation(self) -> None:
        """Stop the training clock; to be called in ``test_fn``."""
        self._pause_training_clock()
        self._refresh_bar("evaluating")

    def log_clocks(self) -> MemoryUsage:
        """Write memory, epsilon and lambda over environment steps."""
        self.writer.add_scalar("train/epsilon", self.policy.eps, global_step=self.env_step)
        self.writer.add_scalar(
            "train/consolidation_coef", self.policy.consolidation_coef, global_step=self.env_step
        )
        return self.monitor.log(self.writer, self.env_step)

    def log_train_data(self, log_data: dict[str, Any], step: int) -> None:
        """Note the returns of finished training episodes, then log as Tianshou does."""
        self._train_returns += log_data["returns"].tolist()
        super().log_train_data(log_data, step)

    def log_test_data(self, log_data: dict[str, Any], step: int) -> None:
        """Add a row to ``progress.csv``, then log as Tianshou does."""
        super().log_test_data(log_data, step)
        self.env_step = step
        usage = self.log_clocks()
        row_step, row_seconds = self._row_start
        seconds = self.train_seconds - row_seconds
        self.run.add_row(
            ProgressRow(
                env_step=step,
                gradient_step=self.policy.gradient_steps,
                eval_return_mean=float(log_data["returns_stat"]["mean"]),
                eval_return_std=float(log_data["returns_stat"]["std"]),
                train_return=float(np.mean(self._train_returns)) if self._train_returns else None,
                steps_per_s=(step - row_step) / seconds if seconds > 0 else None,
                rss_mb=usage.rss / MB,
                buffer_mb=usage.buffer / MB,
            )
        )
        self._row_start = (step, self.train_seconds)
        self._train_returns = []
        self.writer.flush()
        self._refresh_bar("evaluated")

    def close(self, status: str) -> Summary:
        """Take the last measurements, close everything and sum up.

        :param status: how the run ended.
        """
        self._pause_training_clock()
        self._refresh_bar(status)
        self._bar.close()
        usage = self.log_clocks()
        self.finalize()
        best = max(self.run.rows, key=lambda row: row.eval_return_mean, default=None)
        return Summary(
            status=status,
            env_steps=self.env_step,
            gradient_steps=self.policy.gradient_steps,
            best_return=best.eval_return_mean if best else None,
            best_env_step=best.env_step if best else None,
            final_return=self.run.rows[-1].eval_return_mean if best else None,
            steps_per_s=self.env_step / self.train_seconds if self.train_seconds > 0 else None,
            peak_rss_mb=usage.peak_rss / MB,
            buffer_mb=usage.buffer / MB,
        )

    def _pause_training_clock(self) -> None:
        if self._training_since is not None:
            self.train_seconds += time.perf_counter() - self._training_since
            self._training_since = None

    def _refresh_bar(self, activity: str) -> None:
        fields = {"RSS": format_bytes(self.monitor.rss())}
        if self._train_returns:
            fields["train"] = _number(float(np.mean(self._train_returns[-100:])))
        if self.run.rows:
            fields["eval"] = _number(self.run.rows[-1].eval_return_mean)
        self._bar.set_description_str(activity, refresh=False)
        self._bar.set_postfix(fields, refresh=False)
        self._bar.update(self.env_step - self._bar.n)


def train(
    *,
    policy: MeDQNPolicy,
    train_collector: LeanCollector,
    test_collector: LeanCollector,
    run: RunFolder,
    monitor: MemoryMonitor,
    epsilon: Schedule,
    epsilon_test: float,
    warmup_env_steps: int,
    epochs: int,
    step_per_epoch: int,
    step_per_collect: int,
    update_per_step: float,
    batch_size: int,
    episodes_per_test: int,
    show_progress: bool = True,
) -> Summary:
    """Train to the end, or until Ctrl-C, and leave everything in the run folder.

    :param policy: the policy, on its device.
    :param train_collector: explores and stores.
    :param test_collector: evaluates.
    :param run: where the files go.
    :param monitor: measures memory.
    :param epsilon: exploration by environment step.
    :param epsilon_test: exploration in evaluations.
    :param warmup_env_steps: steps collected at the first epsilon before the first update. They do
        not count as training steps, as in Tianshou's example.
    :param epochs: how many epochs; each ends with an evaluation.
    :param step_per_epoch: environment steps per epoch.
    :param step_per_collect: environment steps between updates.
    :param update_per_step: updates per environment step.
    :param batch_size: transitions per update.
    :param episodes_per_test: episodes per evaluation.
    :param show_progress: whether to draw a progress bar.
    """
    logger = RunLogger(
        run=run,
        policy=policy,
        monitor=monitor,
        total_env_steps=epochs * step_per_epoch,
        show_progress=show_progress,
    )

    def before_collect(epoch: int, env_step: int) -> None:
        policy.set_eps(epsilon(env_step))
        policy.set_env_step(env_step)
        logger.before_collect(env_step)

    def before_evaluation(epoch: int, env_step: int | None) -> None:
        logger.before_evaluation()
        policy.set_eps(epsilon_test)

    def save_best(_: BasePolicy[Any]) -> None:
        run.save_policy("policy_best.pth", policy)

    def save_last(epoch: int, env_step: int, gradient_step: int) -> str:
        run.save_policy("policy_last.pth", policy)
        return str(run.path / "policy_last.pth")

    status = "failed"
    try:
        # The trainer would reset the environments after the warm-up, in the middle of an episode.
        train_collector.reset()
        policy.set_eps(epsilon(0))
        train_collector.collect(n_step=warmup_env_steps)
        trainer = OffpolicyTrainer(
            policy=policy,
            train_collector=train_collector,
            test_collector=test_collector,
            max_epoch=epochs,
            step_per_epoch=step_per_epoch,
            step_per_collect=step_per_collect,
            update_per_step=update_per_step,
            episode_per_test=episodes_per_test,
            batch_size=batch_size,
            train_fn=before_collect,
            test_fn=before_evaluation,
            save_best_fn=save_best,
            save_checkpoint_fn=save_last,
            logger=logger,
            verbose=False,
            show_progress=False,
            test_in_train=False,
        )
        trainer.run(reset_collectors=False)
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        summary = logger.close(status)
        save_last(0, 0, 0)
        run.write_json("summary.json", asdict(summary))
    return summary


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
