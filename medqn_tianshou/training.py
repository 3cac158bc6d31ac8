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


def train(
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
) -> Summary:
    """Train to the end, or until Ctrl-C, and leave everything in the run folder.

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
    env_num = train_collector.env_num
    warmup_env_steps = -(-warmup_env_steps // env_num) * env_num
    clock_start = warmup_env_steps if warmup_counts else 0
    logger = RunLogger(
        run=run,
        policy=policy,
        monitor=monitor,
        buffer=train_collector.buffer,
        total_env_steps=total_env_steps,
        clock_start=clock_start,
        evaluates=test_collector is not None,
        return_window=return_window,
        show_progress=show_progress,
    )
    steps_before_clock = warmup_env_steps - clock_start

    def note_episode(collected: int, episode_return: float, length: int) -> None:
        if collected > steps_before_clock:
            logger.note_episode(collected - steps_before_clock, episode_return, length)

    def before_collect(epoch: int, trainer_step: int) -> None:
        env_step = trainer_step + clock_start
        policy.set_eps(epsilon(env_step))
        policy.set_env_step(env_step)
        if target_update_env_steps is not None:
            # The network changes only in updates, so a copy that falls due at any of the steps of
            # this collect is the copy made now: after the last update and before the next.
            due = -(-env_step // target_update_env_steps) * target_update_env_steps
            if due < env_step + step_per_collect:
                policy.sync_weight()
        logger.before_collect(env_step)
        if on_collect is not None:
            on_collect(env_step)

    def before_evaluation(epoch: int, trainer_step: int | None) -> None:
        logger.before_evaluation()
        policy.set_eps(epsilon_test)

    def save_best(_: BasePolicy[Any]) -> None:
        run.save_policy("policy_best.pth", policy)

    def save_last(epoch: int = 0, env_step: int = 0, gradient_step: int = 0) -> str:
        run.save_policy("policy_last.pth", policy)
        return str(run.path / "policy_last.pth")

    train_collector.on_episode_end = note_episode
    trainer = OffpolicyTrainer(
        policy=policy,
        train_collector=train_collector,
        test_collector=test_collector,
        max_epoch=-(-(total_env_steps - clock_start) // step_per_epoch),
        step_per_epoch=step_per_epoch,
        step_per_collect=step_per_collect,
        update_per_step=update_per_step,
        episode_per_test=episodes_per_test,
        batch_size=batch_size,
        train_fn=before_collect,
        test_fn=before_evaluation,
        save_best_fn=save_best if test_collector is not None else None,
        save_checkpoint_fn=save_last,
        logger=logger,
        verbose=False,
        show_progress=False,
        test_in_train=False,
    )
    status = "failed"
    try:
        # Not by the trainer: it would reset the environments after the warm-up, in mid-episode.
        train_collector.reset()
        policy.set_eps(1.0)
        train_collector.collect(n_step=warmup_env_steps)
        trainer.run(reset_collectors=False)
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        collected = train_collector.collect_step - steps_before_clock
        summary = logger.close(status, max(collected, 0))
        save_last()
        run.write_json("summary.json", asdict(summary))
    return summary
