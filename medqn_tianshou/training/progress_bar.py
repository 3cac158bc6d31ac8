"""The progress bar of a run."""

import sys

from tqdm import tqdm

_SECONDS = 0.5


class ProgressBar:
    """Shows what a run is doing and its environment step, if ``show`` is true."""

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
        """Whether half a second has passed since this was last true."""
        if now < self._next_update:
            return False
        self._next_update = now + _SECONDS
        return True

    def update(
        self, activity: str, env_step: int, figures: dict[str, str], *, at_once: bool = False
    ) -> None:
        """Show what the run is doing, and some figures.

        :param at_once: draw now; the next update may be minutes away.
        """
        self._bar.set_description_str(activity, refresh=False)
        self._bar.set_postfix(figures, refresh=False)
        self._bar.update(env_step - self._bar.n)
        if at_once:
            self._bar.refresh()

    def message(self, text: str) -> None:
        """Print a line above the bar, to stderr."""
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()
