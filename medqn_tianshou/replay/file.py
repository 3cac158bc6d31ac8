"""A compact replay buffer as a file: no pickle, checked before it is believed.

Layout: magic, length of the header, header (JSON), the arrays in the order in which
:func:`write_replay` writes them, and a BLAKE2b digest of all that.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.replay.columns import TightColumn
from medqn_tianshou.replay.part import Part
from medqn_tianshou.replay.rows import make_rows

if TYPE_CHECKING:
    from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer

_MAGIC = b"medqn replay 1\n\0"
_DIGEST_NBYTES = 32
_PIECE_NBYTES = 2**20
_KINDS = "biufc"
_LARGEST_STACK = 2**16
_SPARE_RUNS = 8


class ReplayFileError(ValueError):
    """A file that is no replay buffer, or is damaged."""


def write_replay(buffer: "CompactVectorReplayBuffer", file: BinaryIO) -> None:
    """Write a buffer, piece by piece.

    :param buffer: the buffer.
    :param file: open for writing.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_NBYTES)
    header = json.dumps(_describe(buffer)).encode()
    start = (_MAGIC, len(header).to_bytes(4, "little"), header)
    for piece in itertools.chain(start, _arrays(buffer)):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())


def _describe(buffer: "CompactVectorReplayBuffer") -> dict[str, Any]:
    example = buffer.buffers[0]
    return {
        "options": {
            "total_size": buffer.maxsize,
            "buffer_num": buffer.buffer_num,
            **buffer.options,
            "max_bytes": buffer.max_bytes,
            "keep": buffer.keep,
        },
        "block_len": next((s.block_len for s in example.stores.values()), 0),
        "rows": {name: [store.dtype.str, store.shape] for name, store in example.stores.items()},
        "columns": {
            name: [column.dtype.str, column.values.shape[1:]]
            for name, column in example.columns.items()
        },
        "random": _describe_random(buffer),
        "parts": [
            {
                "first": part.first,
                "next": part.next,
                "ring": part.ring,
                "run_is_open": part.run_is_open,
                "runs": part.run_layout,
                "broken": list(part.broken),
                "episode_return": np.asarray(part.episode_return, float).tolist(),
                "episode_length": part.episode_length,
                "columns": {n: column.values.dtype.str for n, column in part.columns.items()},
                "first_row": next((s.first for s in part.stores.values()), 0),
                "rows": {name: store.describe() for name, store in part.stores.items()},
                "random": _describe_random(part),
            }
            for part in buffer.buffers
        ],
    }


def _describe_random(owner: Any) -> list[Any]:
    state = owner._random_state.get_state(legacy=False)
    return [state["state"]["pos"], state["has_gauss"], state["gauss"]]


def _random_key(owner: Any) -> bytes:
    key: NDArray[np.uint32] = owner._random_state.get_state(legacy=False)["state"]["key"]
    return key.tobytes()


def _arrays(buffer: "CompactVectorReplayBuffer") -> Iterator[bytes]:
    yield _random_key(buffer)
    for part in buffer.buffers:
        yield _random_key(part)
        yield part.runs.tobytes()
        for column in part.columns.values():
            yield memoryview(np.ascontiguousarray(column.values)).cast("B")  # type: ignore
        for store in part.stores.values():
            yield from store.pieces()


def read_replay(file: BinaryIO, nbytes: int) -> "CompactVectorReplayBuffer":
    """Read a buffer, piece by piece, after its digest was found right.

    :param file: open for reading, seekable, at the start of what :func:`write_replay` wrote.
    :param nbytes: the size of that.
    """
    start = file.tell()
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ReplayFileError("not a replay buffer of this version")
    file.seek(start)
    digest = hashlib.blake2b(digest_size=_DIGEST_NBYTES)
    left = nbytes - _DIGEST_NBYTES
    while left > 0:
        piece = file.read(min(left, _PIECE_NBYTES))
        if not piece:
            break
        digest.update(piece)
        left -= len(piece)
    if left or file.read(_DIGEST_NBYTES) != digest.digest():
        raise ReplayFileError("truncated or altered: its digest does not match")
    file.seek(start + len(_MAGIC))
    try:
        return _Reader(file, nbytes - len(_MAGIC) - _DIGEST_NBYTES).read()
    except ReplayFileError:
        raise
    # The digest says that the file is as it was written, not that it was written by us.
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ReplayFileError(f"not a sound replay buffer ({error})") from None


class _Reader:
    """Builds a buffer from a file, and believes no number in it unchecked.

    :param file: open for reading, after the magic.
    :param nbytes: what is left to read: nothing larger is allocated.
    """

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        self._file = file
        self._left = nbytes

    def read(self) -> "CompactVectorReplayBuffer":
        from medqn_tianshou.replay.buffer import CompactVectorReplayBuffer

        header = json.loads(self._take(int.from_bytes(self._take(4), "little")))
        options = header["options"]
        parts = header["parts"]
        _require(len(parts) == options["buffer_num"], "environments")
        _require(_count(options["stack_num"]) <= _LARGEST_STACK, "stack")
        buffer = CompactVectorReplayBuffer(**options, random_seed=0)
        _require(buffer.maxsize == options["total_size"], "size")
        rows = {name: _row_type(*row) for name, row in header["rows"].items()}
        columns = {name: _row_type(*column) for name, column in header["columns"].items()}
        self._read_random(buffer, header["random"])
        for part, fields in zip(buffer.buffers, parts, strict=True):
            self._read_part(part, fields, rows, columns, header["block_len"])
        _require(self._left == 0, "length")
        return buffer

    def _read_part(self, part: Part, fields: Any, rows: Any, columns: Any, block_len: int) -> None:
        self._read_random(part, fields["random"])
        part.first, part.next, part.ring = (_count(fields[n]) for n in ("first", "next", "ring"))
        part.run_is_open = bool(fields["run_is_open"])
        part.broken.extend(_count(time) for time in fields["broken"])
        episode_return = np.asarray(fields["episode_return"], float)
        part.episode_return = episode_return if episode_return.ndim else float(episode_return)
        part.episode_length = _count(fields["episode_length"])
        taken, first, places = layout = [_count(number) for number in fields["runs"]]
        # No part keeps more places than that, see Part._forget_runs.
        _require(first <= taken <= places <= 4 * (taken - first) + _SPARE_RUNS, "runs")
        part.set_runs(self._array(np.dtype(np.int64), (taken - first, 3)), layout)
        for name, (dtype, shape) in columns.items():
            column = TightColumn(shape, dtype, 0)
            stored = _row_type(fields["columns"][name], ())[0]
            column.values = self._array(stored, (part.ring, *shape))
            part.columns[name] = column
        for name, (dtype, shape) in rows.items():
            store = make_rows(shape, dtype, _count(block_len), part.stack_num)
            store.first = _count(fields["first_row"])
            sizes = [_count(size) for size in fields["rows"][name]]
            _require(store.restore(sizes, self._take), "block")
            part.stores[name] = store
        _require(part.is_sound(), "bookkeeping")

    def _read_random(self, owner: Any, state: Any) -> None:
        position, has_gauss, gauss = state
        _require(_count(position) <= 624 and has_gauss in (0, 1), "random state")
        key = self._array(np.dtype(np.uint32), (624,))
        owner._random_state.set_state(("MT19937", key, position, has_gauss, gauss))

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        return np.frombuffer(self._take(nbytes), dtype).reshape(shape).copy()

    def _take(self, nbytes: int) -> bytes:
        _require(nbytes <= self._left, "length")
        self._left -= nbytes
        return self._file.read(nbytes)


def _row_type(dtype: Any, shape: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    found = np.dtype(str(dtype))
    _require(found.kind in _KINDS, "dtype")
    return found, tuple(_count(length) for length in shape)


def _count(value: Any) -> int:
    _require(type(value) is int and 0 <= value < 2**48, "number")
    return int(value)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ReplayFileError(f"not a sound replay buffer (wrong {what})")
