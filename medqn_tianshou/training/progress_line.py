"""The line on the terminal that shows the progress of a run."""

import shutil
import sys
import time
from collections import deque
from collections.abc import Mapping

WINDOW_SECONDS = 60.0
"""The window of steps/s, in seconds of training: the current speed, not that of the whole run."""
_SEPARATOR = " | "
_TERMINAL_SECONDS, _FILE_SECONDS = 0.5, 60.0


class ProgressLine:
    """Redraws one line on a terminal, or writes a line per minute to a file.

    :param total: the environment steps of the run.
    :param shown: False draws nothing.
    """

    def __init__(self, total: int, *, shown: bool) -> None:
        self._total = total
        self._shown = shown
        self._on_terminal = sys.stderr.isatty()
        self._interval = _TERMINAL_SECONDS if self._on_terminal else _FILE_SECONDS
        self._next_drawing = 0.0
        self._samples: deque[tuple[float, int]] = deque()  # training seconds, environment step
        self._is_first_step = True

    def update(
        self,
        activity: str,
        env_step: int,
        train_seconds: float,
        figures: Mapping[str, str],
        *,
        now: bool = False,
    ) -> None:
        """Record the progress of the run, and draw the line if it is due.

        :param train_seconds: time spent training, warm-up and evaluation excluded.
        :param figures: what to show, the most important first and the least important last.
        :param now: draw in any case.
        """
        is_later = not self._samples or train_seconds > self._samples[-1][0]
        if activity == "training" and is_later:
            if self._is_first_step and self._samples:
                self._samples.clear()  # the first step also loads and compiles
                self._is_first_step = False
            self._samples.append((train_seconds, env_step))
        while len(self._samples) > 2 and self._samples[1][0] <= train_seconds - WINDOW_SECONDS:
            self._samples.popleft()
        if not self._shown or (time.monotonic() < self._next_drawing and not now):
            return
        self._next_drawing = time.monotonic() + self._interval
        columns = shutil.get_terminal_size().columns - 1 if self._on_terminal else None
        text = self.text(activity, env_step, figures, columns)
        line = f"\r{text}\x1b[K" if self._on_terminal else f"{text}\n"
        self._print(line)

    def text(
        self, activity: str, env_step: int, figures: Mapping[str, str], columns: int | None
    ) -> str:
        """Format the line; on a narrow terminal, the last parts are dropped."""
        *first, last = (f"{name} {value}" for name, value in figures.items())
        parts = [f"{activity} {env_step / self._total:.0%}", *first]
        if speed := self.steps_per_s:
            left = max(self._total - env_step, 0) / speed
            parts += [f"{speed:,.0f} steps/s", f"{_duration(left)} left"]
        parts += [f"{env_step:,} of {self._total:,} steps", last]
        while columns is not None and len(_SEPARATOR.join(parts)) > columns and len(parts) > 1:
            parts.pop()
        return _SEPARATOR.join(parts)

    @property
    def steps_per_s(self) -> float | None:
        """Environment steps per second over the last minute of training."""
        if len(self._samples) < 2:
            return None
        (first_time, first_step), (last_time, last_step) = self._samples[0], self._samples[-1]
        return (last_step - first_step) / (last_time - first_time)

    def write(self, message: str) -> None:
        """Print a message above the line."""
        over = "\r\x1b[K" if self._shown and self._on_terminal else ""
        self._print(f"{over}{message}\n")

    def close(self) -> None:
        """Keep the line; later output starts below it."""
        if self._shown and self._on_terminal:
            self._print("\n")

    def _print(self, text: str) -> None:
        try:
            print(text, end="", file=sys.stderr, flush=True)
        except OSError:  # the terminal is gone; the run is to end with a checkpoint
            self._shown = False


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,}:{minutes:02d}:{seconds:02d}"
