"""Resuming a run: its folder, and its last usable checkpoint."""

import sys
from pathlib import Path
from typing import Any, Protocol

from medqn_tianshou.files.container import UNSOUND
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import CheckpointError, Checkpoints
from medqn_tianshou.training.errors import ConfigError, reason_of
from medqn_tianshou.training.memory import format_bytes, memory_limit
from medqn_tianshou.training.options import RunOptions
from medqn_tianshou.training.run_config import RunConfigError, find_runs, is_finished, read_config
from medqn_tianshou.training.run_folder import RunFolder, RunFolderError
from medqn_tianshou.training.settings import TrainingSettings


def open_run(settings: TrainingSettings, options: RunOptions) -> tuple[RunFolder, bool]:
    """Create the run folder, or open the one to resume.

    :return: the folder, and whether it is new.
    :raises ConfigError: if the folder cannot be created or opened.
    """
    folder, option = options.resume, "resume"
    if options.auto_resume:
        parent, option = options.logdir.joinpath(*settings.run_names), "auto_resume"
        found = find_runs(parent, settings.identity)
        folder = next((run for run in found if not is_finished(run)), None)
    if folder is None:
        try:
            return RunFolder.create(options.logdir, *settings.run_names), True
        except OSError as error:
            remedy = f"cannot contain run folders ({error.strerror or error}); name another"
            raise ConfigError("logdir", options.logdir, remedy) from error
    try:
        if is_finished(folder):
            raise RunFolderError("has finished; start a new run")
        changed = read_config(folder).difference(settings.identity)
        if changed:
            raise RunFolderError(f"is of another version: {changed}; resume it with that one")
        return RunFolder(folder), False
    except (RunConfigError, RunFolderError) as error:
        raise ConfigError(option, folder, str(error)) from error
    except OSError as error:
        remedy = f"cannot be written to ({error.strerror or error})"
        raise ConfigError(option, folder, remedy) from error


class Resumable(Protocol):
    """What continues from a checkpoint."""

    @property
    def env_step(self) -> int:
        """The environment step now."""

    def load_state_dict(
        self, state: dict[str, Any], replay: CompactVectorReplayBuffer | None
    ) -> bool:
        """Continue; return whether the environments do."""

    def abandon(self) -> None:
        """Release the run folder without training."""


def restore(
    training: Resumable, run: RunFolder, checkpoints: Checkpoints, logs: list[Path]
) -> None:
    """Load the run's last sound checkpoint into a training; a run without any starts over.

    :param logs: the run's logs, without those of this process.
    :raises ConfigError: if no checkpoint can be used.
    """
    paths = checkpoints.paths()
    if not paths:
        print("no checkpoint yet: the run starts over", file=sys.stderr)
        return
    for index, path in enumerate(paths):
        nbytes, limit = path.stat().st_size, memory_limit()
        if nbytes > limit.available:
            training.abandon()
            remedy = f"has {format_bytes(nbytes)} to load, and this {limit.source} has only "
            remedy += (
                f"{format_bytes(limit.available)} left; free some memory, or use another machine"
            )
            raise ConfigError("resume", path, remedy)
        try:
            state, replay = checkpoints.read(path)
            sizes = {str(name): int(size) for name, size in state["logs"].items()}
            restored = training.load_state_dict(state, replay)
        except (*UNSOUND, MemoryError) as error:
            problem = str(error)
            if not isinstance(error, CheckpointError):
                problem = f"{path}: does not fit this run ({reason_of(error)})"
            print(f"warning: {problem}; trying the one before", file=sys.stderr)
            continue
        try:
            run.rewind(logs, sizes)
        except (OSError, LookupError, TypeError, ValueError) as error:
            training.abandon()
            remedy = f"has logs that cannot be truncated ({error}); restore them or start a new run"
            raise ConfigError("resume", run.path, remedy) from error
        for damaged in paths[:index]:  # so that they are not tried again
            damaged.rename(damaged.with_name(f"{damaged.name}.damaged"))
        print(f"resumed at env step {training.env_step:,} from {path}", flush=True)
        if not restored:
            warning = "these environments cannot be restored; they start new episodes"
            print(f"warning: {warning}", file=sys.stderr)
        return
    training.abandon()
    for path in set(run.logs()) - set(logs):
        path.unlink()
    raise ConfigError("resume", run.path, "has no checkpoint that can be used; start a new run")
