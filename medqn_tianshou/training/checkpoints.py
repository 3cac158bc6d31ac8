"""When a run writes a checkpoint, where, and which of them stay."""

import time
from pathlib import Path
from typing import Any

from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from medqn_tianshou.training.options import CheckpointInterval

FOLDER = "checkpoints"
_ENDING = ".checkpoint"


class Checkpoints:
    """The checkpoints of a run.

    :param run_folder: the run's folder.
    :param identity: what a checkpoint must say of its run to be this run's.
    :param interval: how often to write one.
    :param keep: how many to keep.
    """

    def __init__(
        self,
        run_folder: Path,
        *,
        identity: dict[str, Any],
        interval: CheckpointInterval,
        keep: int,
    ) -> None:
        self.folder = run_folder / FOLDER
        self._identity = identity
        self._interval = interval
        self._keep = keep
        self._last_env_step: int | None = None
        self._last_time = time.monotonic()

    def are_due(self, env_step: int) -> bool:
        """Tell whether the next one is due; a first call starts the clocks.

        :param env_step: the environment step now.
        """
        if self._last_env_step is None:
            self._last_env_step = env_step
        steps, minutes = self._interval.env_steps, self._interval.minutes
        return (steps is not None and env_step - self._last_env_step >= steps) or (
            minutes is not None and time.monotonic() - self._last_time >= 60 * minutes
        )

    def write(
        self, env_step: int, state: dict[str, Any], buffer: CompactVectorReplayBuffer | None
    ) -> Path:
        """Write a checkpoint, and drop the oldest beyond those to keep.

        :param env_step: the environment step it is of.
        :param state: the run's state.
        :param buffer: the replay buffer, if compact.
        """
        self.folder.mkdir(exist_ok=True)
        for cut_short in self.folder.glob(f".*{_ENDING}.part"):  # by a kill
            cut_short.unlink(missing_ok=True)
        path = self.folder / f"{env_step:012d}{_ENDING}"
        write_checkpoint(path, {"identity": self._identity, "state": state}, buffer)
        self._last_env_step, self._last_time = env_step, time.monotonic()
        for old in self.paths()[self._keep :]:
            old.unlink(missing_ok=True)
        return path

    def paths(self) -> list[Path]:
        """All complete checkpoints, newest first."""
        return sorted(self.folder.glob(f"[0-9]*{_ENDING}"), reverse=True)

    def read(self, path: Path) -> tuple[dict[str, Any], CompactVectorReplayBuffer | None]:
        """Read a checkpoint of this run.

        :param path: the file.
        """
        content, buffer = read_checkpoint(path)
        identity = content.get("identity")
        if identity != self._identity:
            raise CheckpointError(f"{path}: {_difference(identity, self._identity)}")
        state = content.get("state")
        if not isinstance(state, dict):
            raise CheckpointError(f"{path}: not a sound checkpoint (no state)")
        return state, buffer

    def set_aside(self, path: Path) -> None:
        """Rename a checkpoint that cannot be used, so that it is not tried again.

        :param path: the file.
        """
        path.rename(path.with_name(f"{path.name}.damaged"))


def _difference(found: Any, wanted: dict[str, Any]) -> str:
    if not isinstance(found, dict):
        return "not a sound checkpoint (no identity)"
    for name, value in wanted.items():
        if found.get(name) != value:
            return f"of another run ({name} is {found.get(name)}, not {value})"
    return "of another run"
