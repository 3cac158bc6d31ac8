"""Runs of the scripts in child processes, which can be killed and compared."""

import importlib.util
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch._dynamo  # noqa: F401 (what optimizers load when the first one is made)

from medqn_tianshou.files.parameters import read_parameters

ROOT = Path(__file__).parents[2]
_TAIL_SECONDS = 600.0


Main = Callable[[list[str]], int]
"""A command: its arguments, and its exit code."""
UNCAUGHT = 70
"""The exit code of a command that ended with a traceback."""


def load_script(family: str) -> Main:
    """Import a family's script, which is a file and not a module; return its command."""
    path = ROOT / family / f"{family}_medqn.py"
    spec = importlib.util.spec_from_file_location(f"{family}_script", path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda arguments: int(module.main([*arguments, "--no-progress"]))


class Life:
    """A run of a command in a child process, forked so that imports are not repeated.

    :param output: the file for its output.
    :param largest_file: the most bytes that a file may have, to simulate a full disk.
    :param memory: the most bytes that it may allocate.
    """

    def __init__(
        self,
        command: Main,
        arguments: Sequence[str],
        output: Path,
        *,
        largest_file: int | None = None,
        memory: int | None = None,
    ) -> None:
        self.output = output
        output.write_text("")
        self.pid = os.fork()
        if self.pid == 0:
            code = UNCAUGHT
            try:
                self._redirect()
                if largest_file is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
                if memory is not None:
                    most = memory + psutil.Process().memory_info().vms
                    resource.setrlimit(resource.RLIMIT_AS, (most, most))
                code = command(list(arguments))
            except SystemExit as error:
                code = int(error.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def _redirect(self) -> None:
        descriptor = os.open(self.output, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        # Whatever the parent, such as a test, has put in their places.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))

    def wait_for(self, pattern: str) -> bool:
        """Wait for a line of output; return False if the process ended without it."""
        while not re.search(pattern, self.output.read_text()):
            if self.exit_code() is not None:
                return bool(re.search(pattern, self.output.read_text()))
            time.sleep(0.005)
        return True

    def wait_for_file(self, folder: Path, pattern: str) -> None:
        """Wait until there is a file, or the process has ended.

        :param folder: searched with all its subfolders.
        """
        while not list(folder.rglob(pattern)) and self.exit_code() is None:
            time.sleep(0.005)

    def kill_after(self, seconds: float) -> int | None:
        """Let it run for a while, then kill it; return its exit code if it had ended before."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            code = self.exit_code()
            if code is not None:
                return code
            time.sleep(0.002)
        os.kill(self.pid, signal.SIGKILL)
        code = self.wait()
        return None if code == -signal.SIGKILL else code

    _status: int | None = None

    def exit_code(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                return None
            self._status = status
        return os.waitstatus_to_exitcode(self._status)

    def wait(self, seconds: float = _TAIL_SECONDS) -> int:
        """Wait for its end and return its exit code.

        :param seconds: the time after which the run counts as hanging.
        """
        end = time.monotonic() + seconds
        while (code := self.exit_code()) is None:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise RuntimeError(f"a run hangs: {self.output.read_text()[-300:]}")
            time.sleep(0.01)
        return code


def fingerprint(folder: Path) -> dict[str, Any]:
    """Return what two equal runs have in common: parameters and logs, without times and memory."""
    parameters = read_parameters(folder / "policy_last.safetensors")
    rows = (folder / "progress.csv").read_text().splitlines()
    return {
        "parameters": {name: tensor.numpy().tobytes() for name, tensor in parameters.items()},
        "progress": [row.split(",")[:5] for row in rows],
        "episodes": (folder / "episodes.csv").read_text(),
    }


def run_folder(logdir: Path) -> Path:
    """Return the folder of the only run in a log folder."""
    (config,) = logdir.glob("**/config.json")
    return config.parent
