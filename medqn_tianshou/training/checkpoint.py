"""A checkpoint as a file: no pickle, checked before it is believed.

Layout: magic, length of the header, header (JSON: the state, and type and shape of its arrays), the
arrays in their order, a BLAKE2b digest of all that; then, if there is one, the compact replay
buffer in its own format, which ends with a digest, too.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.file import ReplayFileError, read_replay, write_replay

_MAGIC = b"medqn checkpt 1\n"
_LENGTH_NBYTES = 8
_DIGEST_NBYTES = 32
_PIECE_NBYTES = 2**20
_KINDS = "biuf"
_MOST_DIMENSIONS = 32
_ARRAY = "__array__"
UNSOUND = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What Python, numpy and torch raise for content that is not what it should be."""


class CheckpointError(ValueError):
    """A file that is no checkpoint, is damaged, or belongs to another run."""


def write_checkpoint(
    path: Path, state: dict[str, Any], buffer: CompactVectorReplayBuffer | None = None
) -> None:
    """Write a checkpoint, whole or not at all.

    :param path: the file.
    :param state: dictionaries with names as keys, lists, arrays, tensors, numbers, text and None.
    :param buffer: a compact replay buffer to write behind it, piece by piece.
    """
    aside = path.with_name(f".{path.name}.part")
    try:
        with aside.open("wb") as file:
            _write(file, state)
            if buffer is not None:
                write_replay(buffer, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], CompactVectorReplayBuffer | None]:
    """Read what :func:`write_checkpoint` wrote.

    :param path: the file.
    :raises CheckpointError: if it is damaged, or no checkpoint.
    """
    try:
        with path.open("rb") as file:
            nbytes = path.stat().st_size
            state, position = _read(file, nbytes)
            buffer = read_replay(file, nbytes - position) if position < nbytes else None
    except (CheckpointError, ReplayFileError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (*UNSOUND, MemoryError) as error:
        raise CheckpointError(f"{path}: not a sound checkpoint ({error})") from None
    return state, buffer


def _write(file: BinaryIO, state: dict[str, Any]) -> None:
    arrays: list[NDArray[Any]] = []
    tree = _encode(state, arrays)
    types = [[array.dtype.str, array.shape] for array in arrays]
    header = json.dumps({"state": tree, "arrays": types}).encode()
    digest = hashlib.blake2b(digest_size=_DIGEST_NBYTES)
    for piece in _pieces(header, arrays):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())


def _pieces(header: bytes, arrays: list[NDArray[Any]]) -> Iterator[Any]:
    yield _MAGIC
    yield len(header).to_bytes(_LENGTH_NBYTES, "little")
    yield header
    for array in arrays:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Turn a state into JSON, its arrays collected beside it."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, bytes):
        value = np.frombuffer(value, np.uint8)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise TypeError(f"an array of {value.dtype} cannot be saved")
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"keys must be text, not {list(value)}")
        return {key: _encode(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item, arrays) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def _decode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: _decode(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    return value


def _read(file: BinaryIO, nbytes: int) -> tuple[dict[str, Any], int]:
    """Read the state; return it and where it ends in the file."""
    digest = hashlib.blake2b(digest_size=_DIGEST_NBYTES)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise CheckpointError("not a checkpoint of this version")
    digest.update(_MAGIC)
    left = nbytes - len(_MAGIC) - _LENGTH_NBYTES - _DIGEST_NBYTES
    length_bytes = file.read(_LENGTH_NBYTES)
    digest.update(length_bytes)
    length = int.from_bytes(length_bytes, "little")
    if length > left:
        raise CheckpointError("truncated")
    header_bytes = file.read(length)
    digest.update(header_bytes)
    left -= length
    header = json.loads(header_bytes)
    start = file.tell()
    layout = [_array_type(*entry) for entry in header["arrays"]]
    total = sum(size for _, _, size in layout)
    if total > left:
        raise CheckpointError("truncated")
    # The digest first: nothing is allocated for what was not written so.
    unread = total
    while unread > 0:
        piece = file.read(min(unread, _PIECE_NBYTES))
        if not piece:
            raise CheckpointError("truncated")
        digest.update(piece)
        unread -= len(piece)
    if file.read(_DIGEST_NBYTES) != digest.digest():
        raise CheckpointError("truncated or altered: its digest does not match")
    end = file.tell()
    file.seek(start)
    arrays = []
    for dtype, shape, _ in layout:
        array = np.empty(shape, dtype)
        # A BinaryIO that is a file on disk can read into memory; typeshed does not know.
        file.readinto(array.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
        arrays.append(array)
    file.seek(end)
    state = _decode(header["state"], arrays)
    if not isinstance(state, dict):
        raise CheckpointError("not a sound checkpoint (no state)")
    return state, end


def _array_type(dtype: Any, shape: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Check an array's type and shape; return them and the bytes they take."""
    found = np.dtype(str(dtype))
    if found.kind not in _KINDS or found.hasobject or found.shape:
        raise CheckpointError(f"not a sound checkpoint (array of {found})")
    if len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise CheckpointError("not a sound checkpoint (shape)")
    nbytes = found.itemsize
    for length in shape:
        nbytes *= length
    return found, tuple(shape), nbytes


def _sync_folder(folder: Path) -> None:
    """Make a renaming last through a power failure, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
