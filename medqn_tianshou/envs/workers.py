"""Environments in worker processes, with an error that names the worker that died."""

import atexit
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray
from tianshou.env import SubprocVectorEnv

STOP_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""Signals that stop a run: Ctrl-C, a scheduler, a closed terminal."""


class DeadWorkerError(RuntimeError):
    """A worker process has ended."""


class WorkerVectorEnv(SubprocVectorEnv):
    """Tianshou's SubprocVectorEnv, which raises :class:`DeadWorkerError` when a worker dies.

    :param name: the task, for the error message.
    """

    def __init__(self, env_fns: Sequence[Callable[[], Any]], *, name: str) -> None:
        self._name = name
        super().__init__([partial(_make_undisturbed, env_fn) for env_fn in env_fns])
        # The interpreter would wait for workers that ignore its SIGTERM.
        atexit.register(_kill, [worker.process for worker in self.workers])  # type: ignore[attr-defined]

    def reset(self, *args: Any, **kwargs: Any) -> tuple[NDArray[Any], Any]:
        """Reset as the base class does."""
        try:
            return super().reset(*args, **kwargs)
        except (EOFError, ConnectionError) as error:
            raise DeadWorkerError(self._describe_dead()) from error

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Step as the base class does."""
        try:
            return super().step(*args, **kwargs)
        except (EOFError, ConnectionError) as error:
            raise DeadWorkerError(self._describe_dead()) from error

    def _describe_dead(self) -> str:
        dead = []
        for number, worker in enumerate(self.workers):
            process = worker.process  # type: ignore[attr-defined]
            process.join(0.5)  # its pipe may close shortly before the process ends
            if not process.is_alive():
                code = process.exitcode
                how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
                dead.append(f"worker {number} (process {process.pid}, {how})")
        names = ", ".join(dead) or "a worker"
        return f"the environments of {self._name} lost {names}; is there memory for so many?"


def _make_undisturbed(env_fn: Callable[[], Any]) -> Any:
    """Build an environment in a worker that ignores the signals sent to its process group.

    The run writes its checkpoint first, and then ends its workers.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return env_fn()


def _kill(processes: Sequence[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
