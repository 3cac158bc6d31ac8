"""The progress bar of a run."""

import sys

from tqdm import tqdm

from medqn_tianshou.training.summary import format_number

_SECONDS = 0.5


class ProgressBar:
    """Shows what a run is doing, its environment step, its memory and its last returns.

    :param total_env_steps: the length of the run.
    :param show: whether to draw the bar.
    """

    def __init__(self, *, total_env_steps: int, show: bool) -> None:
        self._next_update = 0.0
        self._bar = tqdm(
            total=total_env_steps,
            unit=" steps",
            desc="warm-up",
            dynamic_ncols=True,
            mininterval=_SECONDS if sys.stderr.isatty() else 30.0,
            disable=not show,
        )

    def start_at(self, env_step: int) -> None:
        """Start at the environment step of a resumed run."""
        self._bar.n = self._bar.initial = env_step

    def is_due(self, now: float) -> bool:
        """Whether it is time to update the bar; updates are due every half second.

        :param now: the time, by ``time.perf_counter``.
        """
        if now < self._next_update:
            return False
        self._next_update = now + _SECONDS
        return True

    def update(
        self,
        activity: str,
        env_step: int,
        *,
        rss: str,
        train_return: float | None,
        eval_return: float | None,
        at_once: bool = False,
    ) -> None:
        """Update the bar.

        :param activity: what the run is doing.
        :param env_step: the environment step.
        :param rss: the memory of the process.
        :param train_return: the training return, if any.
        :param eval_return: the return of the last evaluation, if any.
        :param at_once: draw now; the next update may be minutes away.
        """
        returns = {"train": train_return, "eval": eval_return}
        known = {name: format_number(r) for name, r in returns.items() if r is not None}
        self._bar.set_description_str(activity, refresh=False)
        self._bar.set_postfix({"RSS": rss, **known}, refresh=False)
        self._bar.update(env_step - self._bar.n)
        if at_once:
            self._bar.refresh()

    def message(self, text: str) -> None:
        """Print a line above the bar, to stderr."""
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()
