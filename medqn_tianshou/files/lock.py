"""A lock for one process, which is released when the process ends."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

_NOT_SUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}


class InUseError(RuntimeError):
    """Another process holds the lock.

    :param owner: the id of that process, or ``"unknown"``.
    """

    def __init__(self, owner: str) -> None:
        super().__init__(f"in use by process {owner}")
        self.owner = owner


class ProcessLock:
    """Locks a path between processes; the file at the path contains the id of the owner.

    The lock itself is on a hidden file beside it, because older versions of filelock truncate a
    file that they fail to lock, and Windows lets no other process read a locked file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        hidden = path.with_name(f".{path.name}")
        self._lock = FileLock(hidden, timeout=0, thread_local=False)

    def acquire(self) -> None:
        """Take the lock; on a file system without locks, do nothing.

        :raises InUseError: if another process has it.
        """
        try:
            self._lock.acquire()
        except Timeout:
            owner = "unknown"
            with suppress(OSError):
                owner = self._path.read_text().strip() or owner
            raise InUseError(owner) from None
        except OSError as error:
            if error.errno in _NOT_SUPPORTED:
                return
            raise
        try:
            self._path.write_text(f"{os.getpid()}\n")
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock, if it is held."""
        self._lock.release(force=True)
