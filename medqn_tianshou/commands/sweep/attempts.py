"""One attempt at a run: its process, from the start to the end.

Ray sends this module to the workers of a cluster, so it imports the standard library alone.
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
    """Start a module as the process of a run; ``output`` is the file for its output."""
    with open(output, "wb") as file:  # noqa: PTH123 (one line, and no other import)
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,  # closed when this process ends, which the run watches
            stdout=file,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the sweep alone, which then stops its runs: a second signal would stop
            # a run without a checkpoint.
            start_new_session=True,
        )


def attempt(arguments: Sequence[str], output: str, threads: int) -> int:
    """Run to the end; return the exit code. An interruption lets the run write its checkpoint."""
    process = start(arguments, output, threads)
    while process.poll() is None:
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            process.terminate()
    return int(process.returncode)
