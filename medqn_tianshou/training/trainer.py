"""Tianshou's trainer for many small training steps."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, fields
from statistics import fmean
from typing import Any

from tianshou.data import CollectStats
from tianshou.data.collector import CollectStatsBase
from tianshou.utils.torch_utils import policy_within_training_step

from medqn_tianshou.algorithm.stats import LossTerms
from medqn_tianshou.host.api import MeDQNTrainingStats, Trainer
from medqn_tianshou.startup import release_code

SMOOTHED_UPDATES = 100
"""Over how many updates Tianshou averages the losses that it logs."""


class LeanTrainer(Trainer):
    """Tianshou's off-policy trainer; it computes only what it logs.

    It takes the same training steps and logs the same figures. It has no stopping function, and no
    progress bar of its own.

    :param evaluating: the context of each evaluation.
    """

    def __init__(
        self, *, evaluating: Callable[[], AbstractContextManager[None]], **options: Any
    ) -> None:
        self._evaluating = evaluating
        self.is_evaluating = False
        super().__init__(**options)
        self.steps_left: int | None = None
        """Environment steps to the end of the run, where the last collect is cut; None: never."""
        self.is_alone = False
        """Whether nobody else changes the policy while it trains: not even ``train_fn``."""
        self.recent_losses: deque[dict[str, float]] = deque(maxlen=SMOOTHED_UPDATES)

    def reset(self, reset_collectors: bool = True, reset_buffer: bool = False) -> None:
        """Start from step 0, with an evaluation that does not set the best policy."""
        save_best, self.save_best_fn = self.save_best_fn, None
        release_code()  # of the compiler that numba has loaded by now
        with self._evaluation():
            super().reset(reset_collectors, reset_buffer)
        self.save_best_fn = save_best
        self.best_epoch = -1  # the next evaluation is the best so far

    def test_step(self) -> tuple[CollectStats, bool]:
        """Evaluate."""
        collector: Any = self.train_collector
        collector.settle()  # it may be collecting ahead, with numpy's generator
        with self._evaluation():
            return super().test_step()

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        self.is_evaluating = True
        try:
            with self._evaluating():
                yield
        finally:
            self.is_evaluating = False

    def training_step(self) -> tuple[CollectStatsBase, Any, bool]:
        """Take all training steps of an epoch: the base class formats a progress bar for each."""
        steps = episodes = 0
        interval: Any = self.step_per_collect
        update_stats = None
        policy: Any = self.policy
        has_fast_paths = self.is_alone and hasattr(policy, "undisturbed")
        undisturbed = policy.undisturbed() if has_fast_paths else nullcontext()
        with policy_within_training_step(policy), undisturbed:
            while steps < self.step_per_epoch:
                if self.steps_left is not None and self.steps_left - steps < interval:
                    self.step_per_collect = self.steps_left - steps
                collected = self._collect_training_data()
                if self.step_per_collect == interval:  # otherwise no update is due
                    update_stats = self.policy_update_fn(collected)
                steps += collected.n_collected_steps
                episodes += collected.n_collected_episodes
        self.step_per_collect = interval
        total = CollectStats(n_collected_steps=steps, n_collected_episodes=episodes)
        return total, update_stats, False

    def policy_update_fn(self, collect_stats: CollectStatsBase) -> Any:
        """Update as often as the collected steps ask for; return what the last update reported."""
        count = round(self.update_per_step * collect_stats.n_collected_steps)
        if count == 0 or self.train_collector is None:
            return super().policy_update_fn(collect_stats)  # raises an error
        for _ in range(count):
            update_stat = self._sample_and_update(self.train_collector.buffer)
            self.policy_update_time += update_stat.train_time
        return update_stat

    def _update_moving_avg_stats_and_log_update_data(self, update_stat: Any) -> None:
        """Remember the losses; average them where a line is due."""
        self.recent_losses.append(_losses(update_stat))
        logger: Any = self.logger
        if logger.wants_update_data:
            update_stat.smoothed_loss = self.smoothed_losses()
            logger.log_update_data(asdict(update_stat), self._gradient_step)

    def smoothed_losses(self) -> dict[str, float]:
        """Average each loss over the recent updates."""
        names = {name: None for losses in self.recent_losses for name in losses}
        return {
            name: fmean(losses[name] for losses in self.recent_losses if name in losses)
            for name in names
        }


def _losses(update_stat: Any) -> dict[str, float]:
    """Return what ``get_loss_stats_dict`` returns; it takes long to find what has no loss."""
    if type(update_stat) is not MeDQNTrainingStats:
        losses: dict[str, float] = update_stat.get_loss_stats_dict()
        return losses
    terms = vars(update_stat)
    return {name: terms[name] for name in _LOSSES if terms[name] is not None}


_LOSSES = tuple(field.name for field in fields(LossTerms))
