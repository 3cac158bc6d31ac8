"""Atomic writes: after a crash or on a full disk, a file is either the old or the new one."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces ``path`` when the block ends without an error."""
    aside = path.with_name(f".{path.name}.part")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # the new name survives a power failure where folders can be synced
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json_atomically(path: Path, content: Any, *, indent: int = 2) -> None:
    """Write a JSON file atomically."""
    write_text_atomically(path, json.dumps(content, indent=indent) + "\n")
