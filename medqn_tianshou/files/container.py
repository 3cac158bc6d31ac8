"""A binary file of plain data and arrays, without pickle, checked before anything in it is used.

Layout: magic (16 bytes, with the version), length of the header, length of the payload (8 bytes
each), header (JSON: the data, and dtype and shape of its arrays), payload (the arrays, then pieces
of bytes that the owner of the format reads one by one), and a BLAKE2b digest of all of that.
"""

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.files.schema import MOST, list_of, whole

_MAGIC_NBYTES = 16
_LENGTHS = struct.Struct("<QQ")
_DIGEST_NBYTES = 32
_PIECE_NBYTES = 2**20
_MOST_HEADER_NBYTES = 2**26
_KINDS = "biufc"
_ARRAY = "__array__"

check_shape = list_of(whole(), at_most=32)

UNSOUND = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors that Python, numpy and torch raise for invalid content."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of file in this container.

    :param name: the first word of the magic.
    :param version: a file of another version is refused.
    :param noun: the kind of file in messages, e.g. ``"checkpoint"``.
    :param error: raised for a file that is damaged, or not of this format.
    """

    name: str
    version: int
    noun: str
    error: type[ValueError]

    @property
    def magic(self) -> bytes:
        """The first bytes of a file."""
        return f"medqn {self.name} {self.version}\n".encode().ljust(_MAGIC_NBYTES, b"\0")

    def check_magic(self, found: bytes) -> None:
        """Raise the format's error for a file of another version or kind."""
        if found == self.magic:
            return
        other = re.match(rb"medqn %s (\d+)\n" % self.name.encode(), found)
        if other:
            raise self.error(
                f"written by another version of medqn-tianshou (file format {int(other[1])}; this "
                f"version reads {self.version})"
            )
        raise self.error(f"not a {self.noun}")

    def require(self, holds: bool, what: str) -> None:
        """Raise the format's error unless something holds."""
        if not holds:
            raise self.error(f"not a valid {self.noun} (wrong {what})")

    def array_type(self, dtype: Any, shape: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
        """Check dtype and shape of an array; return them and the bytes they take."""
        found = np.dtype(str(dtype))
        # Of another byte order, compiled code would not take it.
        self.require(found.kind in _KINDS and found.isnative, "dtype")
        check_shape(shape)
        lengths = tuple(shape)
        nbytes = found.itemsize * math.prod(lengths)
        self.require(nbytes < MOST, "shape")
        return found, lengths, nbytes

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Turn errors from invalid content into the format's error.

        A digest shows that a file is unchanged, not that this package wrote it.
        """
        try:
            yield
        except self.error:
            raise
        except (*UNSOUND, MemoryError) as error:
            raise self.error(f"not a valid {self.noun} ({error})") from None


def write_container(
    file: BinaryIO, form: Format, content: Any, pieces: Sequence[bytes | NDArray[Any]] = ()
) -> None:
    """Write a container at the file's position.

    :param content: dictionaries with text as keys, lists, arrays, bytes, numbers, text and None.
    :param pieces: bytes and arrays to write behind it, without a copy.
    """
    arrays: list[NDArray[Any]] = []
    tree = _encode(content, arrays)
    types = [[array.dtype.str, array.shape] for array in arrays]
    header = json.dumps({"content": tree, "arrays": types}).encode()
    if len(header) > _MOST_HEADER_NBYTES:
        raise ValueError(f"a header of {len(header)} bytes is too long; store lists as arrays")
    payload = [_raw(piece) for piece in (*arrays, *pieces)]
    lengths = _LENGTHS.pack(len(header), sum(map(len, payload)))
    digest = hashlib.blake2b(digest_size=_DIGEST_NBYTES)
    for piece in (form.magic, lengths, header, *payload):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())


def _raw(piece: bytes | NDArray[Any]) -> bytes | memoryview:
    if isinstance(piece, bytes):
        return piece
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data


class Container:
    """Reads a container after verifying its digest; a forged length allocates no memory.

    :param file: open for reading, seekable, at the start of the container.
    :raises ValueError: the format's error, if the file is damaged, or is of another format.
    """

    def __init__(self, file: BinaryIO, form: Format) -> None:
        self._file = file
        self._form = form
        with form.checking():
            header_nbytes, self._left = self._verify()
            header = json.loads(file.read(header_nbytes))
            layout = [form.array_type(*entry) for entry in header["arrays"]]
            form.require(sum(nbytes for *_, nbytes in layout) <= self._left, "length")
            arrays = {number: self._read_array(*entry) for number, entry in enumerate(layout)}
            self.content = _decode(header["content"], arrays)

    def _verify(self) -> tuple[int, int]:
        """Verify the digest; leave the file at the header, and return the two lengths."""
        start = self._file.tell()
        file_nbytes = self._file.seek(0, os.SEEK_END) - start
        self._file.seek(start)
        prelude_nbytes = _MAGIC_NBYTES + _LENGTHS.size
        prelude = self._file.read(prelude_nbytes)
        self._form.check_magic(prelude[:_MAGIC_NBYTES])
        lengths = prelude[_MAGIC_NBYTES:].ljust(_LENGTHS.size, b"\0")
        header_nbytes, payload_nbytes = _LENGTHS.unpack(lengths)
        nbytes = prelude_nbytes + header_nbytes + payload_nbytes + _DIGEST_NBYTES
        self.trailing_nbytes = file_nbytes - nbytes
        """Bytes in the file behind the container."""
        if self.trailing_nbytes < 0 or header_nbytes > _MOST_HEADER_NBYTES:
            raise self._form.error("truncated or altered")
        digest = hashlib.blake2b(prelude, digest_size=_DIGEST_NBYTES)
        left = header_nbytes + payload_nbytes
        while left > 0 and (piece := self._file.read(min(left, _PIECE_NBYTES))):
            digest.update(piece)
            left -= len(piece)
        if self._file.read(_DIGEST_NBYTES) != digest.digest():
            raise self._form.error("truncated or altered: its digest does not match")
        self._file.seek(start + prelude_nbytes)
        return header_nbytes, payload_nbytes

    def _read_array(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], nbytes: int
    ) -> NDArray[Any]:
        self._left -= nbytes
        array = np.empty(shape, dtype)
        # A BinaryIO that is a file on disk can read into memory; typeshed does not know.
        content = array.reshape(-1).view(np.uint8)
        self._file.readinto(content.data)  # type: ignore[attr-defined]
        # Other bytes than 0 and 1 would be neither true nor false.
        self._form.require(dtype.kind != "b" or not content.size or content.max() <= 1, "flag")
        return array

    def take(self, nbytes: int) -> bytes:
        """Read so many bytes of the pieces."""
        self._form.require(nbytes <= self._left, "length")
        self._left -= nbytes
        return self._file.read(nbytes)

    def finish(self) -> None:
        """Check that all pieces were read, and leave the file behind the container."""
        self._form.require(self._left == 0, "length")
        self._file.seek(_DIGEST_NBYTES, os.SEEK_CUR)


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Turn data into JSON, and collect its arrays beside it."""
    if isinstance(value, bytes):
        value = np.frombuffer(value, np.uint8)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise TypeError(f"an array of {value.dtype} cannot be saved")
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, dict):
        if not all(isinstance(key, str) and key != _ARRAY for key in value):
            raise TypeError(f"keys must be text and not {_ARRAY}: {list(value)}")
        return {key: _encode(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item, arrays) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def _decode(value: Any, arrays: dict[int, NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return arrays.pop(value[_ARRAY])  # only once: two owners would write to it
        return {key: _decode(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    return value
