"""The checkpoints of a run: when to write one, where, and which of them to keep."""

import time
from pathlib import Path
from typing import Any

from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from medqn_tianshou.training.options import CheckpointInterval

FOLDER = "checkpoints"
_ENDING = ".checkpoint"


class Checkpoints:
    """Writes and reads the checkpoints of a run.

    :param identity: the run's settings; a checkpoint with another identity is not read.
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
        """Whether the next checkpoint is due; the first call starts counting steps."""
        if self._last_env_step is None:
            self._last_env_step = env_step
        steps, minutes = self._interval.env_steps, self._interval.minutes
        return (steps is not None and env_step - self._last_env_step >= steps) or (
            minutes is not None and time.monotonic() - self._last_time >= 60 * minutes
        )

    def write(
        self, env_step: int, state: dict[str, Any], buffer: CompactVectorReplayBuffer | None
    ) -> Path:
        """Write a checkpoint, with the replay buffer if it is compact, and delete the oldest."""
        self.folder.mkdir(exist_ok=True)
        for partial in self.folder.glob(f".*{_ENDING}.part"):  # of a process that was killed
            partial.unlink(missing_ok=True)
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
        """Read a checkpoint of this run."""
        content, buffer = read_checkpoint(path)
        identity = content.get("identity")
        if identity != self._identity:
            raise CheckpointError(f"{path}: {_difference(identity, self._identity)}")
        state = content.get("state")
        if not isinstance(state, dict):
            raise CheckpointError(f"{path}: not a sound checkpoint (no state)")
        return state, buffer

    def set_aside(self, path: Path) -> None:
        """Rename a checkpoint that cannot be used, so that it is not tried again."""
        path.rename(path.with_name(f"{path.name}.damaged"))


def _difference(found: Any, wanted: dict[str, Any]) -> str:
    if not isinstance(found, dict):
        return "not a sound checkpoint (no identity)"
    for name, value in wanted.items():
        if found.get(name) != value:
            return f"of another run ({name} is {found.get(name)}, not {value})"
    return "of another run"
