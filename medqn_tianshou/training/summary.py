"""How a run ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from medqn_tianshou.training.run_folder import ProgressRow


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a run ended; also ``summary.json``. Returns are of evaluations, if there are any."""

    status: str
    """``finished``, ``interrupted`` (Ctrl-C, SIGTERM) or ``failed``."""
    env_steps: int
    gradient_steps: int
    best_return: float | None
    best_env_step: int | None
    final_return: float | None
    steps_per_s: float | None
    """Training speed over the whole run, evaluation excluded."""
    peak_rss_mb: float
    buffer_mb: float
    buffer_transitions: int

    @property
    def metrics(self) -> dict[str, float | None]:
        """The figures to compare runs by."""
        names = ("best_return", "final_return", "steps_per_s", "peak_rss_mb", "buffer_mb")
        return {name: getattr(self, name) for name in names}

    def text(self, folder: str) -> str:
        """Write the summary for the terminal; ``folder`` is the run's."""
        at_step = "" if self.best_env_step is None else f" at env step {self.best_env_step:,}"
        lines = [
            f"{self.status} after {self.env_steps:,} env steps, {self.gradient_steps:,} gradient "
            f"steps",
            f"  best return   {_number(self.best_return)}{at_step}",
            f"  final return  {_number(self.final_return)}",
            f"  speed         {_number(self.steps_per_s)} steps/s",
            f"  peak RSS      {self.peak_rss_mb:.1f} MB",
            f"  replay buffer {self.buffer_mb:.1f} MB, {self.buffer_transitions:,} transitions",
            f"  files         {folder}",
        ]
        return "\n".join(lines)


def best_and_final(rows: Sequence[ProgressRow], *, evaluated: bool) -> dict[str, Any]:
    """Find the best return, its environment step, and the final return."""
    returns = [
        (row.eval_return_mean if evaluated else row.train_return, row.env_step) for row in rows
    ]
    known = [(value, step) for value, step in returns if value is not None]
    best = max(known, key=lambda entry: entry[0], default=(None, None))
    final = known[-1][0] if known else None
    return {"best_return": best[0], "best_env_step": best[1], "final_return": final}


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
