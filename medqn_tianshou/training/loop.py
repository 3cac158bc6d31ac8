"""Runs Tianshou's trainer with the paper's clocks, and writes the run folder."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from medqn_tianshou.algorithm.schedules import LinearSchedule
from medqn_tianshou.algorithm.stats import NonFiniteLossError
from medqn_tianshou.collecting.lean import LeanCollector
from medqn_tianshou.envs.state import envs_state, set_envs_state
from medqn_tianshou.host.api import Agent
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.tianshou_buffers import (
    close_episodes,
    load_raw_replay_state,
    raw_replay_state,
)
from medqn_tianshou.training.checkpoint import Checkpoints
from medqn_tianshou.training.memory import MemoryMonitor
from medqn_tianshou.training.replay_memory import check_replay, replace_replay
from medqn_tianshou.training.run_folder import RunFolder, Summary
from medqn_tianshou.training.run_logger import RunLogger
from medqn_tianshou.training.run_state import (
    load_policy_state,
    load_trainer_state,
    policy_state,
    trainer_state,
)
from medqn_tianshou.training.seeding import (
    OwnRandomNumbers,
    RunSeeds,
    global_random_state,
    set_global_random_state,
)
from medqn_tianshou.training.settings import TrainingSettings
from medqn_tianshou.training.state_schema import state_schema
from medqn_tianshou.training.trainer import LeanTrainer
from medqn_tianshou.training.wandb_mirror import WandbMirror


class RunError(Exception):
    """A run cannot continue; the message is for the user."""


class _Stopped(Exception):  # noqa: N818 (it is no error)
    """A signal stopped the run; it resumes from its last checkpoint."""


class Training:
    """A run of Tianshou's trainer, from the warm-up to the summary.

    :param test_collector: evaluates; None does not evaluate.
    :param checkpoints: writes the run's checkpoints; None writes none.
    :param on_collect: called with the environment step before each collect, after the update.
    """

    def __init__(
        self,
        *,
        settings: TrainingSettings,
        policy: Agent,
        train_collector: LeanCollector,
        test_collector: LeanCollector | None,
        run: RunFolder,
        monitor: MemoryMonitor,
        checkpoints: Checkpoints | None = None,
        on_collect: Callable[[int], None] | None = None,
        show_progress: bool = True,
        wandb: WandbMirror | None = None,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.run_folder = run
        self.train_collector = train_collector
        self._test_collector = test_collector
        env_num = train_collector.env_num
        self._warmup_env_steps = -(-settings.warmup_steps // env_num) * env_num
        self.clock_start = self._warmup_env_steps if settings.warmup_counts else 0
        """Environment steps that count before the trainer's step 0."""
        self._steps_before_clock = self._warmup_env_steps - self.clock_start
        self._epsilon = LinearSchedule(
            settings.eps_train, settings.eps_train_final, settings.eps_decay_steps
        )
        self.checkpoints = checkpoints
        self.stop_signal: int | None = None
        """Set by a signal: the run ends before the next training step or evaluation."""
        self._is_resumed, self._on_collect = False, on_collect
        self.logger = RunLogger(
            settings=settings,
            run=run,
            policy=policy,
            buffer=train_collector.buffer,
            monitor=monitor,
            clock=lambda: self.env_step,
            clock_start=self.clock_start,
            evaluates=test_collector is not None,
            show_progress=show_progress,
            wandb=wandb,
        )
        train_collector.on_episode_end = self._log_episode
        if test_collector is not None:
            test_collector.on_episode_end = self.logger.log_evaluation_episode
        self._evaluation_random = OwnRandomNumbers(RunSeeds.from_run_seed(settings.seed).evaluation)
        self.trainer = LeanTrainer(
            evaluating=self._evaluation_random,
            policy=policy,
            train_collector=train_collector,
            test_collector=test_collector,
            max_epoch=-(-settings.total_env_steps // settings.env_steps_per_epoch),
            step_per_epoch=settings.env_steps_per_epoch,
            step_per_collect=settings.step_per_collect,
            update_per_step=settings.updates_per_env_step,
            episode_per_test=settings.episodes_per_evaluation,
            batch_size=0 if settings.uses_whole_buffer else settings.batch_size,  # 0: all
            train_fn=self._before_collect,
            test_fn=self._before_evaluation if test_collector is not None else None,
            save_best_fn=self._save_best if test_collector is not None else None,
            save_checkpoint_fn=self._save_last,
            logger=self.logger,
            verbose=False,
            show_progress=False,
            test_in_train=False,
        )
        self.trainer.is_alone = on_collect is None

    @property
    def env_step(self) -> int:
        """The current environment step, by the clock of the run."""
        return int(self.trainer.env_step) + self.clock_start

    @property
    def is_evaluating(self) -> bool:
        """Whether an evaluation is running, which may take minutes and can be repeated."""
        return self.trainer.is_evaluating

    def run(self) -> Summary:
        """Train to the end, or until a signal; all results are in the run folder.

        :raises RunError: if the loss is no longer a number, or a checkpoint cannot be written.
        """
        status = "failed"
        try:
            if not self._is_resumed:
                self.warm_up()
                self.trainer.reset(reset_collectors=False)
            self._run_epochs()
            status = "finished"
        except (KeyboardInterrupt, _Stopped):
            status = "interrupted"
        except NonFiniteLossError as error:
            paths = self.checkpoints.paths() if self.checkpoints else ()
            last = f"the last checkpoint is {paths[0]}" if paths else "there is no checkpoint yet"
            raise RunError(
                f"{error}, near env step {self.logger.env_step}; {last}; try a smaller --lr, "
                "--huber, or a smaller --lambda-end"
            ) from error
        finally:
            try:
                summary = self._close(status)
            except OSError:
                if status != "failed":  # otherwise the first error says more
                    raise
            finally:
                self.run_folder.unlock()
        return summary

    def _close(self, status: str) -> Summary:
        self.train_collector.stop()
        collected = self.train_collector.collect_step - self._steps_before_clock
        summary = self.logger.close(status, max(collected, 0))
        if status != "failed":  # what was saved before may be better
            self._save_last()
        self.run_folder.write_json("summary.json", asdict(summary))
        return summary

    def _run_epochs(self) -> None:
        """Run the trainer from its current step, which may be in the middle of an epoch."""
        # Not its run(): that would start from step 0, and its epochs are all of one length. Here
        # they end at multiples of it by the run's clock, and the last one at the end of the run.
        total, interval = self.settings.total_env_steps, self.settings.env_steps_per_epoch
        while (env_step := self.env_step) < total:
            self.trainer.step_per_epoch = min(interval - env_step % interval, total - env_step)
            if not self.settings.overlap:  # which plays a fixed number of steps ahead
                self.trainer.steps_left = total - env_step
            next(self.trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state of the run, except a compact replay buffer."""
        self.train_collector.settle()  # it samples from numpy's generator
        collector, evaluation = self.train_collector, self._test_collector
        compact = isinstance(collector.buffer, CompactVectorReplayBuffer)
        return {
            "policy": policy_state(self.policy),
            "trainer": trainer_state(self.trainer),
            "train_collector": _collector_state(collector),
            "test_collector": None if evaluation is None else _collector_state(evaluation),
            "raw_replay": None if compact else raw_replay_state(collector.buffer),
            "logger": self.logger.state_dict(),
            "logs": self.run_folder.log_sizes(),
            "random": global_random_state(),
            "evaluation_random": self._evaluation_random.state_dict(),
        }

    def load_state_dict(
        self, state: dict[str, Any], replay: CompactVectorReplayBuffer | None
    ) -> bool:
        """Continue from what :meth:`state_dict` returned; :meth:`run` then resumes from there.

        :param replay: the compact replay buffer, if the run has one.
        :return: False if the environments could not be restored and started new episodes.
        """
        buffer: Any = self.train_collector.buffer
        check_replay(replay, buffer, self.train_collector.env)
        state_schema(self.settings, self.policy, self.train_collector, self._test_collector)(state)
        if replay is None:
            load_raw_replay_state(buffer, state["raw_replay"])
        else:
            replace_replay(buffer, replay)
        load_policy_state(self.policy, state["policy"])
        load_trainer_state(self.trainer, state["trainer"])
        collected = state["train_collector"]
        restored = collected["envs"] is not None
        self.train_collector.load_state_dict(collected, new_episodes=not restored)
        if restored:
            set_envs_state(self.train_collector.env, collected["envs"])
        else:
            close_episodes(buffer)
        tests, evaluated = self._test_collector, state["test_collector"]
        if tests is not None:
            tests.load_state_dict(evaluated)
            if evaluated["envs"] is not None:
                set_envs_state(tests.env, evaluated["envs"])
        self.logger.load_state_dict(state["logger"])
        self._evaluation_random.load_state_dict(state["evaluation_random"])
        # Last: the environments' resets may have sampled from them.
        set_global_random_state(state["random"])
        self._is_resumed = True
        return restored

    def abandon(self) -> None:
        """Release the run folder without training."""
        self.train_collector.stop()
        self.logger.abandon()
        self.run_folder.unlock()

    def _write_checkpoint(self, env_step: int) -> None:
        if self.checkpoints is None:
            return
        state, buffer = self.state_dict(), self.train_collector.buffer
        compact = buffer if isinstance(buffer, CompactVectorReplayBuffer) else None
        try:
            self.checkpoints.write(env_step, state, compact)
        except OSError as error:
            raise RunError(
                f"the checkpoint of env step {env_step} could not be written to "
                f"{self.checkpoints.folder} ({error.strerror or error}); earlier ones are intact: "
                f"make room, then continue with --resume {self.run_folder.path}"
            ) from error

    def warm_up(self) -> None:
        """Take random actions until the first update."""
        self.logger.before_warm_up()
        # The trainer would reset the environments after its own warm-up, in mid-episode.
        self.train_collector.reset()
        self.policy.set_eps(1.0)
        self.train_collector.collect(n_step=self._warmup_env_steps)

    def _log_episode(self, collected: int, episode_return: float, length: int) -> None:
        env_step = collected - self._steps_before_clock
        if env_step > 0:
            self.logger.log_episode(env_step, episode_return, length)

    def _before_collect(self, epoch: int, trainer_step: int) -> None:
        env_step = trainer_step + self.clock_start
        if self.stop_signal is not None:
            self._write_checkpoint(env_step)
            raise _Stopped
        # At the start of the training step: a run resumed from here repeats all of it.
        if self.checkpoints is not None and self.checkpoints.are_due(
            env_step, evaluation_follows=self._evaluation_follows(env_step)
        ):
            self._write_checkpoint(env_step)
        self.policy.set_eps(self._epsilon(env_step))
        self.policy.set_env_step(env_step)
        # Before a copy to the target network: after it, they would always agree.
        self.logger.before_collect(env_step)
        interval = self.settings.target_copy_env_steps
        if interval is not None:
            # The network changes only in updates, so a copy that falls due at any of the steps of
            # this collect is the copy made now: after the last update and before the next.
            next_copy = -(-env_step // interval) * interval
            if next_copy < env_step + self.settings.step_per_collect:
                self.policy.sync_weight()
        if self._on_collect is not None:
            self._on_collect(env_step)

    def _evaluation_follows(self, env_step: int) -> bool:
        """Whether the training step that begins here is the last one before an evaluation."""
        if self._test_collector is None:
            return False
        total, interval = self.settings.total_env_steps, self.settings.env_steps_per_epoch
        left = min(interval - env_step % interval, total - env_step)
        return left <= self.settings.step_per_collect

    def _before_evaluation(self, epoch: int, trainer_step: int | None) -> None:
        if self.stop_signal is not None:  # since the training step began, or during the warm-up
            raise _Stopped
        self.logger.before_evaluation()
        self.policy.set_eps(self.settings.eps_test)

    def _save_best(self, _: Any) -> None:
        self.run_folder.save_policy("policy_best.safetensors", self.policy.parameters_by_name())

    def _save_last(self, epoch: int = 0, env_step: int = 0, gradient_step: int = 0) -> str:
        self.run_folder.save_policy("policy_last.safetensors", self.policy.parameters_by_name())
        return str(self.run_folder.path / "policy_last.safetensors")


def _collector_state(collector: LeanCollector) -> dict[str, Any]:
    return {**collector.state_dict(), "envs": envs_state(collector.env)}
