"""Runs Tianshou's OffpolicyTrainer by the paper's clocks and leaves a run folder behind."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tianshou.policy import BasePolicy
from tianshou.trainer import OffpolicyTrainer

from medqn_tianshou.collector import LeanCollector
from medqn_tianshou.memory import MemoryMonitor
from medqn_tianshou.policy import MeDQNPolicy
from medqn_tianshou.run_folder import RunFolder
from medqn_tianshou.run_logger import RunLogger, Summary
from medqn_tianshou.schedules import Schedule


class Training:
    """A run of Tianshou's OffpolicyTrainer, from the warm-up to the summary.

    :param policy: the policy, on its device.
    :param train_collector: explores and stores.
    :param test_collector: evaluates; None does not evaluate.
    :param run: where the files go.
    :param monitor: measures memory.
    :param epsilon: exploration by environment step.
    :param epsilon_test: exploration in evaluations.
    :param warmup_env_steps: random steps before the first update.
    :param warmup_counts: whether those are the first of the run's steps, as in the paper's
        low-dimensional and MinAtar experiments, or come before them, as in Tianshou's Atari one.
    :param total_env_steps: environment steps of the run.
    :param step_per_epoch: environment steps between evaluations.
    :param step_per_collect: environment steps between updates, the paper's C_current.
    :param update_per_step: updates per environment step.
    :param batch_size: transitions per update; 0 is the whole buffer, as MeDQN(U) uses it.
    :param target_update_env_steps: the paper's C_target where it counts environment steps; None
        leaves the target network to the policy, which counts gradient steps.
    :param episodes_per_test: episodes per evaluation.
    :param return_window: how many training episodes a training return averages over.
    :param on_collect: called with the environment step before each collect, after the update.
    :param show_progress: whether to draw a progress bar.
    """

    def __init__(
        self,
        *,
        policy: MeDQNPolicy,
        train_collector: LeanCollector,
        test_collector: LeanCollector | None,
        run: RunFolder,
        monitor: MemoryMonitor,
        epsilon: Schedule,
        epsilon_test: float = 0.0,
        warmup_env_steps: int,
        warmup_counts: bool = False,
        total_env_steps: int,
        step_per_epoch: int,
        step_per_collect: int,
        update_per_step: float,
        batch_size: int,
        target_update_env_steps: int | None = None,
        episodes_per_test: int = 1,
        return_window: int = 100,
        on_collect: Callable[[int], None] | None = None,
        show_progress: bool = True,
    ) -> None:
        env_num = train_collector.env_num
        self.policy = policy
        self.run_folder = run
        self.train_collector = train_collector
        self._warmup_env_steps = -(-warmup_env_steps // env_num) * env_num
        self._clock_start = self._warmup_env_steps if warmup_counts else 0
        self._epsilon = epsilon
        self._epsilon_test = epsilon_test
        self._step_per_collect = step_per_collect
        self._target_update_env_steps = target_update_env_steps
        self._on_collect = on_collect
        self.logger = RunLogger(
            run=run,
            policy=policy,
            monitor=monitor,
            buffer=train_collector.buffer,
            total_env_steps=total_env_steps,
            clock_start=self._clock_start,
            evaluates=test_collector is not None,
            return_window=return_window,
            show_progress=show_progress,
        )
        train_collector.on_episode_end = self._note_episode
        self.trainer = OffpolicyTrainer(
            policy=policy,
            train_collector=train_collector,
            test_collector=test_collector,
            max_epoch=-(-(total_env_steps - self._clock_start) // step_per_epoch),
            step_per_epoch=step_per_epoch,
            step_per_collect=step_per_collect,
            update_per_step=update_per_step,
            episode_per_test=episodes_per_test,
            batch_size=batch_size,
            train_fn=self._before_collect,
            test_fn=self._before_evaluation,
            save_best_fn=self._save_best if test_collector is not None else None,
            save_checkpoint_fn=self._save_last,
            logger=self.logger,
            verbose=False,
            show_progress=False,
            test_in_train=False,
        )

    def run(self) -> Summary:
        """Train to the end, or until Ctrl-C, and leave everything in the run folder."""
        status = "failed"
        try:
            self.warm_up()
            self.trainer.run(reset_collectors=False)
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            self.train_collector.stop()
            collected = self.train_collector.collect_step - self._steps_before_clock
            summary = self.logger.close(status, max(collected, 0))
            self._save_last()
            self.run_folder.write_json("summary.json", asdict(summary))
        return summary

    def warm_up(self) -> None:
        """Play at random until the first update; the trainer goes on from there."""
        # Not by the trainer: it would reset the environments after the warm-up, in mid-episode.
        self.train_collector.reset()
        self.policy.set_eps(1.0)
        self.train_collector.collect(n_step=self._warmup_env_steps)

    @property
    def _steps_before_clock(self) -> int:
        return self._warmup_env_steps - self._clock_start

    def _note_episode(self, collected: int, episode_return: float, length: int) -> None:
        if collected > self._steps_before_clock:
            self.logger.note_episode(collected - self._steps_before_clock, episode_return, length)

    def _before_collect(self, epoch: int, trainer_step: int) -> None:
        env_step = trainer_step + self._clock_start
        self.policy.set_eps(self._epsilon(env_step))
        self.policy.set_env_step(env_step)
        # Before a copy to the target network: after it, they would always agree.
        self.logger.before_collect(env_step)
        if self._target_update_env_steps is not None:
            # The network changes only in updates, so a copy that falls due at any of the steps of
            # this collect is the copy made now: after the last update and before the next.
            interval = self._target_update_env_steps
            if -(-env_step // interval) * interval < env_step + self._step_per_collect:
                self.policy.sync_weight()
        if self._on_collect is not None:
            self._on_collect(env_step)

    def _before_evaluation(self, epoch: int, trainer_step: int | None) -> None:
        self.train_collector.settle()  # both may draw from numpy's generator
        self.logger.before_evaluation()
        self.policy.set_eps(self._epsilon_test)

    def _save_best(self, _: BasePolicy[Any]) -> None:
        self.run_folder.save_policy("policy_best.pth", self.policy)

    def _save_last(self, epoch: int = 0, env_step: int = 0, gradient_step: int = 0) -> str:
        self.run_folder.save_policy("policy_last.pth", self.policy)
        return str(self.run_folder.path / "policy_last.pth")
