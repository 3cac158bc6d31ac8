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
from pathlib import Path
from typing import Any

from medqn_tianshou.commands.sweep.plans import FAMILIES, run_names, settle
from medqn_tianshou.training.resuming import find_runs, is_finished, run_identity
from medqn_tianshou.training.run_folder import RunFolder, RunFolderError

PATIENCE = 0.3
"""Seconds between two looks at a run that another process is just ending."""


def main(arguments: Sequence[str], **options: Any) -> int:
    """Go on with the run, or start it, or do nothing if it has come to its end.

    :param arguments: the family, and the flags of ``medqn train FAMILY``.
    :param options: for the family's ``main``.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    family, *flags = arguments
    args, settings = settle(family, flags)
    parent = args.logdir.joinpath(*run_names(family, args, settings))
    for folder in find_runs(parent, run_identity(args, settings)):
        _wait_until_free(folder)
        if is_finished(folder):
            print(f"{folder} has come to its end already")
            return 0
    code: int = FAMILIES[family].main(flags, f"medqn train {family}", **options)
    return code


def _wait_until_free(folder: Path) -> None:
    """Let the process of an attempt before, whose parent was killed, write its checkpoint."""
    while True:
        try:
            RunFolder.reopen(folder).unlock()
            return
        except RunFolderError as error:
            print(f"{folder} {error}", flush=True)
            time.sleep(PATIENCE)


def _end_with_parent() -> None:
    # Not sys.stdin: a thread that holds its lock would break the end of the interpreter.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
