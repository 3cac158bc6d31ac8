"""The process of a run: ``medqn train`` that stops, with a checkpoint, when its parent ends.

The parent keeps a pipe to this process's standard input open. However the parent ends, the pipe is
closed then, and the run stops as after SIGTERM.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from medqn_tianshou.startup import prepare_process

prepare_process()  # before anything imports torch

from medqn_tianshou.commands import train
from medqn_tianshou.commands.flags import make_train_parser
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES
from medqn_tianshou.training.run_config import find_runs, is_finished
from medqn_tianshou.training.run_folder import RunFolder, RunFolderError

PATIENCE_SECONDS = 0.3


def main(arguments: Sequence[str], **options: Any) -> int:
    """Resume the run, or start it, or do nothing if it has finished.

    :param arguments: the family, and the flags of ``medqn train FAMILY``.
    :param options: for the family's ``main``.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _keep_nice()
    family, *flags = arguments
    parser = make_train_parser(family, f"medqn train {family}")
    given = vars(parser.parse_args(flags))
    with parser.reporting():
        settings = train.settings_from(SETTINGS_CLASSES[family], given)
    for folder in find_runs(given["logdir"].joinpath(*settings.run_names), settings.identity):
        _wait_until_free(folder)
        if is_finished(folder):
            print(f"{folder} has finished already")
            return 0
    return train.main(family, flags, parser.prog, **options)


def _wait_until_free(folder: Path) -> None:
    """Wait until the process of an earlier attempt, whose parent was killed, has ended."""
    while True:
        try:
            RunFolder(folder).unlock()
            return
        except RunFolderError as error:
            print(f"{folder} {error}", flush=True)
            time.sleep(PATIENCE_SECONDS)


def _keep_nice() -> None:
    """Apply the nice value to this session: Linux shares the CPU between sessions first."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.nice(0)))


def _end_with_parent() -> None:
    # Not sys.stdin: the interpreter cannot end properly while a thread has its lock.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
