"""Runs of the scripts in processes of their own, killed at random instants and resumed."""

import importlib.util
import os
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
_TAIL_SECONDS = 600.0
_LATE_SHARE = 0.9
"""Of the lives, how many may be killed only once there is a checkpoint."""


def load_script(family: str) -> ModuleType:
    """Import a family's script, which is a file and not a module.

    :param family: ``"lowdim"``, ``"minatar"`` or ``"atari"``.
    """
    path = ROOT / family / f"{family}_medqn.py"
    spec = importlib.util.spec_from_file_location(f"{family}_script", path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Life:
    """A run of a script in a child process, forked so that nothing is imported anew.

    :param script: the script.
    :param arguments: its command line.
    :param output: a file for what it prints.
    :param largest_file: the most bytes a file may have, as on a full disk; None is no limit.
    """

    def __init__(
        self,
        script: ModuleType,
        arguments: Sequence[str],
        output: Path,
        *,
        largest_file: int | None = None,
    ) -> None:
        self.output = output
        output.write_text("")
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                self._redirect()
                if largest_file is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
                code = script.main([*arguments, "--no-progress"])
            except SystemExit as error:
                code = int(error.code or 0)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def _redirect(self) -> None:
        descriptor = os.open(self.output, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)

    def wait_for(self, pattern: str) -> bool:
        """Wait for a line of output; return False if the process ended without it.

        :param pattern: a regular expression.
        """
        while not re.search(pattern, self.output.read_text()):
            if self.exit_code() is not None:
                return bool(re.search(pattern, self.output.read_text()))
            time.sleep(0.005)
        return True

    def wait_for_file(self, folder: Path, pattern: str) -> None:
        """Wait until there is a file, or the process has ended.

        :param folder: where to look, in all its folders.
        :param pattern: the file's name.
        """
        while not list(folder.rglob(pattern)) and self.exit_code() is None:
            time.sleep(0.005)

    def kill_after(self, seconds: float) -> int | None:
        """Let it run for a while, then kill it; return its exit code if it had ended before.

        :param seconds: how long.
        """
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
        """Its exit code, or None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                return None
            self._status = status
        return os.waitstatus_to_exitcode(self._status)

    def wait(self, seconds: float = _TAIL_SECONDS) -> int:
        """Wait for its end and return its exit code.

        :param seconds: after which it is taken to hang.
        """
        end = time.monotonic() + seconds
        while (code := self.exit_code()) is None:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise RuntimeError(f"a run hangs: {self.output.read_text()[-300:]}")
            time.sleep(0.01)
        return code


@dataclass
class Tally:
    """What became of a number of kills."""

    kills: int = 0
    resumes: int = 0
    fallbacks: int = 0
    """Resumes that had to take an earlier checkpoint than the newest."""
    starts_over: int = 0
    """Kills before the first checkpoint."""
    runs: int = 0
    equal: int = 0
    """Runs whose end is that of the run that was never killed."""
    lost: int = 0
    """Resumes that failed."""


def kill_again_and_again(
    family: str, flags: Sequence[str], folder: Path, *, kills: int, seconds: float, seed: int = 0
) -> Tally:
    """Kill runs of a script at random instants, resume each time, and compare their ends.

    :param family: the script.
    :param flags: a short run with frequent checkpoints.
    :param folder: for the runs.
    :param kills: how many.
    :param seconds: the longest life.
    :param seed: of the instants.
    """
    script, rng, tally = load_script(family), random.Random(seed), Tally()
    output = folder / "output.txt"
    if Life(script, [*flags, "--logdir", str(folder / "whole")], output).wait() != 0:
        raise RuntimeError(f"the run that is not killed failed: {output.read_text()}")
    whole = fingerprint(run_folder(folder / "whole"))
    while tally.kills < kills:
        tally.runs += 1
        logdir = folder / str(tally.runs)
        arguments = [*flags, "--logdir", str(logdir)]
        code: int | None = None
        begun = "run folder: .*\n"
        while code is None:
            life = Life(script, arguments, output)
            if not life.wait_for(begun):
                code = life.wait()
            elif tally.kills < kills:
                if rng.random() < _LATE_SHARE:
                    life.wait_for_file(logdir, "*.checkpoint")
                code = life.kill_after(rng.uniform(0, seconds))
                tally.kills += code is None
            else:
                code = life.wait()
            said = output.read_text()
            tally.resumes += "resumed at env step" in said
            tally.starts_over += "the run starts over" in said
            tally.fallbacks += "trying the one before" in said
            arguments = ["--resume", str(run_folder(logdir))]
            begun = "resumed at env step .*\n|the run starts over\n"
        tally.lost += code != 0
        tally.equal += code == 0 and fingerprint(run_folder(logdir)) == whole
    return tally


def fingerprint(folder: Path) -> dict[str, Any]:
    """What two equal runs have in common: parameters and logs, but for times and memory.

    :param folder: a run's folder.
    """
    parameters = torch.load(folder / "policy_last.pth", weights_only=True)
    rows = (folder / "progress.csv").read_text().splitlines()
    return {
        "parameters": {name: tensor.numpy().tobytes() for name, tensor in parameters.items()},
        "progress": [row.split(",")[:5] for row in rows],
        "episodes": (folder / "episodes.csv").read_text(),
    }


def run_folder(logdir: Path) -> Path:
    """The folder of the one run in a folder."""
    (config,) = logdir.glob("**/config.json")
    return config.parent
