"""One attempt at a run: its process, from the start to the end.

This module is sent to the workers of a cluster as it is, so it imports the standard library alone.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

POLL_SECONDS = 0.1
MODULE = "medqn_tianshou.commands.sweep.guarded"


def start(
    arguments: Sequence[str], output: str, threads: int, module: str = MODULE
) -> subprocess.Popen[bytes]:
    """Start the process of a run.

    :param arguments: what the run's module is called with.
    :param output: the file for what it prints.
    :param threads: how many it may have.
    :param module: the module to run.
    """
    with open(output, "wb") as file:  # noqa: PTH123 (one line, and no other import)
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,  # closed when this process ends, which the run watches
            stdout=file,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the sweep alone, which then tells its runs: two signals would be one
            # too many, as the second one stops a run without a checkpoint.
            start_new_session=True,
        )


def attempt(arguments: Sequence[str], output: str, threads: int) -> int:
    """Run to the end; return the exit code. An interruption lets the run write its checkpoint.

    :param arguments: what the run's module is called with.
    :param output: the file for what it prints.
    :param threads: how many it may have.
    """
    process = start(arguments, output, threads)
    while process.poll() is None:
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            process.terminate()
    return int(process.returncode)
