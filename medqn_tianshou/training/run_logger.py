"""Logs a run: TensorBoard, ``progress.csv``, ``episodes.csv``, the progress line, the summary."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from tianshou.data import ReplayBuffer

from medqn_tianshou.host.api import Agent, Logger
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.tianshou_buffers import replay_nbytes
from medqn_tianshou.training.dashboard import LAYOUT, Probe, policy_figures, write_hparams
from medqn_tianshou.training.event_writer import EventWriter
from medqn_tianshou.training.memory import MB, MemoryMonitor, MemoryUsage, format_bytes
from medqn_tianshou.training.progress_line import ProgressLine
from medqn_tianshou.training.replay_memory import make_watch
from medqn_tianshou.training.run_folder import ProgressRow, RunFolder, Summary, best_and_final
from medqn_tianshou.training.settings import TrainingSettings
from medqn_tianshou.training.wandb_mirror import WandbMirror

LOG_EVERY_ENV_STEPS = 1000
LOG_EVERY_GRADIENT_STEPS = 100
LOGGED_POINTS = 1000
"""TensorBoard shows at most so many points of a curve: long runs log losses no more often."""
_LINE_SECONDS = 0.5
_LAST_STEPS = (
    "last_log_train_step", "last_log_test_step", "last_log_update_step", "last_log_info_step",
    "last_save_step",
)  # fmt: skip
_OF_LAST_COLLECT = {"returns_stat", "lens_stat"}
"""Tianshou's figures of the few episodes that ended last; ``train/return`` is over more."""
_SAVED = (
    "env_step", "_cap_is_known", "_train_epsilon", "_next_row", "_last_row", "_next_clock_log",
    "_last_speed",
)  # fmt: skip


class RunLogger(Logger):
    """Tianshou's TensorBoard logger, which also writes the run folder's tables and draws the line.

    :param clock: returns the environment step now.
    :param clock_start: environment steps that count before the trainer's step 0.
    :param evaluates: whether each evaluation writes a row to ``progress.csv``; otherwise each
        hundredth of the run does.
    """

    def __init__(
        self,
        *,
        settings: TrainingSettings,
        run: RunFolder,
        policy: Agent,
        buffer: ReplayBuffer,
        monitor: MemoryMonitor,
        clock: Callable[[], int],
        clock_start: int,
        evaluates: bool,
        show_progress: bool,
        wandb: WandbMirror | None,
    ) -> None:
        run.await_event_file()
        super().__init__(
            EventWriter(str(run.path), self._mirror),
            train_interval=LOG_EVERY_ENV_STEPS,
            update_interval=max(LOG_EVERY_GRADIENT_STEPS, settings.gradient_steps // LOGGED_POINTS),
            write_flush=False,
        )
        # Tianshou's logger would skip everything before the first interval is full.
        self.last_log_train_step = -self.train_interval
        self.last_log_update_step = -self.update_interval
        self._wandb = wandb
        self.run = run
        self.policy = policy
        self.monitor = monitor
        self.buffer = buffer
        self.env_step = 0
        self.writer.add_custom_scalars(LAYOUT)
        self._probe = Probe(buffer, env_steps=settings.total_env_steps)
        self._cap_is_known = False
        self._memory_watch = make_watch(settings, buffer, monitor.rss)
        self._train_epsilon = 1.0
        self._clock, self._clock_start = clock, clock_start
        self._evaluated, self._evaluations = 0, settings.episodes_per_evaluation
        self._row_interval = None if evaluates else max(settings.total_env_steps // 100, 1)
        self._next_row = self._next_clock_log = 0
        self._last_row = (clock_start, 0.0)  # env step, training seconds
        self._last_speed = (clock_start, 0, 0.0)  # env step, gradient step, training seconds
        self._train_seconds = 0.0
        self._cpu_before = 0.0  # of the processes that this run was resumed from
        self._training_since: float | None = None
        self._train_returns: deque[float] = deque(maxlen=settings.return_window)
        self._next_line_update = 0.0
        self._line = ProgressLine(settings.total_env_steps, shown=show_progress)

    def state_dict(self) -> dict[str, Any]:
        """Return all that later entries depend on, after earlier ones are written."""
        self.writer.flush()
        return {
            "last": {name: getattr(self, name) for name in _LAST_STEPS},
            **{name.lstrip("_"): getattr(self, name) for name in _SAVED},
            "train_seconds": self.train_seconds,
            "cpu_seconds": self._cpu_before + time.process_time(),
            "peak_rss": self.monitor.peak_rss,
            "train_returns": list(self._train_returns),
            "probe": self._probe.state_dict(),
            "wandb": None if self._wandb is None else self._wandb.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned."""
        for name in _LAST_STEPS:
            setattr(self, name, int(state["last"][name]))
        for name in _SAVED:
            setattr(self, name, state[name.lstrip("_")])
        self._train_seconds = float(state["train_seconds"])
        self._cpu_before = float(state.get("cpu_seconds", 0.0))
        self.monitor.peak_rss = max(self.monitor.peak_rss, int(state.get("peak_rss", 0)))
        self._train_returns.clear()
        self._train_returns.extend(map(float, state["train_returns"]))
        self._probe.load_state_dict(state["probe"])
        if self._wandb is not None and state.get("wandb") is not None:
            self._wandb.load_state_dict(state["wandb"])

    @property
    def train_seconds(self) -> float:
        """Time spent training, evaluation and warm-up excluded."""
        if self._training_since is None:
            return self._train_seconds
        return self._train_seconds + time.perf_counter() - self._training_since

    def before_warm_up(self) -> None:
        """Show that the run has begun."""
        self._update_line("warm-up")

    def before_collect(self, env_step: int) -> None:
        """Start the training clock, write what is due and update the line."""
        self.env_step = env_step
        self._train_epsilon = self.policy.eps  # an evaluation has its own
        now = time.perf_counter()
        if self._training_since is None:
            self._training_since = now
        if env_step >= self._next_clock_log:
            self._log_clocks()
        if self._row_interval is not None and env_step >= self._next_row:
            self._next_row = env_step + self._row_interval
            self._add_row(self.monitor.measure())
        if now >= self._next_line_update:
            self._next_line_update = now + _LINE_SECONDS
            self._update_line("training")

    def before_evaluation(self) -> None:
        """Stop the training clock."""
        self._pause_training_clock()
        self.env_step = self._clock()
        self._evaluated = 0
        self._update_line("evaluating", now=True)  # the next update may be minutes away

    def log_evaluation_episode(self, *_: Any) -> None:
        """Show how far an evaluation is; an agent that learned little may play for minutes."""
        self._evaluated += 1
        self._update_line(f"evaluating ({self._evaluated} of {self._evaluations} episodes)")

    def log_episode(self, env_step: int, episode_return: float, length: int) -> None:
        """Log a training episode."""
        self._train_returns.append(episode_return)
        self.run.add_episode(env_step, episode_return, length)

    def log_train_data(self, log_data: dict[str, Any], step: int) -> None:
        """Log as Tianshou does, by the clock of the run, but for the last collect's episodes."""
        self.env_step = step + self._clock_start
        kept = {name: v for name, v in log_data.items() if name not in _OF_LAST_COLLECT}
        super().log_train_data(kept, self.env_step)

    @property
    def wants_update_data(self) -> bool:
        """Whether :meth:`log_update_data` would write a line now."""
        return self.policy.gradient_steps - self.last_log_update_step >= self.update_interval

    def log_update_data(self, log_data: dict[str, Any], step: int) -> None:
        """Log as Tianshou does, by gradient steps: its trainer counts updates."""
        self.env_step = self._clock()
        super().log_update_data(log_data, self.policy.gradient_steps)

    def log_test_data(self, log_data: dict[str, Any], step: int) -> None:
        """Log as Tianshou does, and add a row to ``progress.csv``."""
        self.env_step = step + self._clock_start
        super().log_test_data(log_data, self.env_step)
        returns = log_data["returns_stat"]
        self._add_row(self._log_clocks(), float(returns["mean"]), float(returns["std"]))
        self._update_line("evaluated")

    def abandon(self) -> None:
        """Close everything; nothing was logged."""
        if self._wandb is not None:
            self._wandb.close("failed", {})
        self._line.close()
        self.finalize()

    def close(self, status: str, env_step: int) -> Summary:
        """Take the last measurements, close everything and summarise the run."""
        self._pause_training_clock()
        self.env_step = env_step
        usage = self._log_clocks()
        if self._row_interval is not None:
            self._add_row(usage)
        self._update_line(status, now=True)
        self._line.close()
        summary = Summary(
            status=status,
            env_steps=env_step,
            gradient_steps=self.policy.gradient_steps,
            **best_and_final(self.run.rows, evaluated=self._row_interval is None),
            steps_per_s=self._speed(self._clock_start, 0.0),
            peak_rss_mb=usage.peak_rss / MB,
            buffer_mb=usage.buffer / MB,
            buffer_transitions=len(self.buffer),
            cpu_seconds=self._cpu_before + time.process_time(),
        )
        if self._wandb is not None:
            self._wandb.close(status, summary.metrics)
            self._wandb = None
        write_hparams(self.writer, self.run.path)
        self.finalize()
        return summary

    def _mirror(self, tag: str, value: float) -> None:
        if self._wandb is not None:
            self._wandb.add(tag, value, self.env_step)

    def _log_clocks(self) -> MemoryUsage:
        """Log memory, return, schedules, speed and Q values once a step; keep to the memory cap."""
        if self.env_step <= self._next_clock_log - LOG_EVERY_ENV_STEPS:
            # The peak may have risen since, and the summary reports what is measured here.
            return self.monitor.log(self.writer, self.env_step)
        self._next_clock_log = self.env_step + LOG_EVERY_ENV_STEPS
        if self._memory_watch and (message := self._memory_watch.check()):
            self._line.write(message)
        buffer = self.buffer
        if isinstance(buffer, CompactVectorReplayBuffer) and not self._cap_is_known:
            self._cap_is_known = buffer.is_capped
            if buffer.is_capped:
                self._line.write(
                    f"replay buffer: {len(buffer):,} of {buffer.maxsize:,} transitions fit in "
                    f"{format_bytes(buffer.max_bytes or 0)}; the oldest are evicted"
                )
        probed = self._probe.measure(self.policy, self.env_step)
        train_return = self._train_return()
        values = {
            "train/epsilon": self._train_epsilon,
            **policy_figures(self.policy),
            **({} if train_return is None else {"train/return": train_return}),
            **self._speeds_since_last_log(),
            **{f"probe/{tag}": value for tag, value in probed.items()},
        }
        for tag, value in values.items():
            self.writer.add_scalar(tag, value, global_step=self.env_step)
        return self.monitor.log(self.writer, self.env_step)

    def _speeds_since_last_log(self) -> dict[str, float]:
        env_step, gradient_step, seconds = self._last_speed
        elapsed = self.train_seconds - seconds
        if self.env_step <= env_step or elapsed <= 0:
            return {}
        self._last_speed = (self.env_step, self.policy.gradient_steps, self.train_seconds)
        return {
            "speed/env_steps_per_s": (self.env_step - env_step) / elapsed,
            "speed/gradient_steps_per_s": (self.policy.gradient_steps - gradient_step) / elapsed,
        }

    def _add_row(
        self, usage: MemoryUsage, eval_mean: float | None = None, eval_std: float | None = None
    ) -> None:
        self.run.add_row(
            ProgressRow(
                env_step=self.env_step,
                gradient_step=self.policy.gradient_steps,
                eval_return_mean=eval_mean,
                eval_return_std=eval_std,
                train_return=self._train_return(),
                steps_per_s=self._speed(*self._last_row),
                rss_mb=usage.rss / MB,
                buffer_mb=usage.buffer / MB,
            )
        )
        self._last_row = (self.env_step, self.train_seconds)
        self.writer.flush()

    def _speed(self, since_step: int, since_seconds: float) -> float | None:
        seconds = self.train_seconds - since_seconds
        steps = self.env_step - since_step
        return steps / seconds if seconds > 0 and steps > 0 else None

    def _train_return(self) -> float | None:
        return float(np.mean(self._train_returns)) if self._train_returns else None

    def _pause_training_clock(self) -> None:
        self._train_seconds = self.train_seconds
        self._training_since = None

    def _update_line(self, activity: str, *, now: bool = False) -> None:
        evaluated = self.run.rows[-1].eval_return_mean if self.run.rows else None
        returns = {"return": self._train_return(), "eval": evaluated}
        known = {name: f"{value:,.2f}" for name, value in returns.items() if value is not None}
        rss, replay = map(format_bytes, (self.monitor.rss(), replay_nbytes(self.buffer)))
        figures = {**known, "RSS": rss, "replay": replay}
        self._line.update(activity, self.env_step, self.train_seconds, figures, now=now)
