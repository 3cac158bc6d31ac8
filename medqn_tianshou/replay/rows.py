"""The observations of one environment in order, as encoded blocks or as rows of equal size.

Both kinds of store number their rows from 0. Rows are appended, and the oldest block is evicted.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.replay.codecs import ChangeCodec

_POINTER_NBYTES = 8
ARRAY_OVERHEAD = sys.getsizeof(np.empty(0, np.uint8)) + _POINTER_NBYTES
BYTES_OVERHEAD = sys.getsizeof(b"") + _POINTER_NBYTES

Numbers = NDArray[np.int64]


class FixedRows:
    """Rows of equal size: booleans as bits, all other dtypes unchanged.

    :param shape: the shape of a row.
    :param block_len: rows per block.
    :param tail: how many of the newest rows :meth:`equals` can compare.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], block_len: int, tail: int
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.block_len = block_len
        self.tail = tail
        self.cells = int(np.prod(shape, dtype=np.int64))
        self.first = 0
        """The number of the oldest row, the first of its block."""
        self.next = 0
        """The number of the next row."""
        self.nbytes = 0
        """Bytes stored: rows, and the Python objects around them."""
        self._blocks: list[Any] = []
        self._is_bits = dtype == np.bool_
        self._width = -(-self.cells // 8) if self._is_bits else self.cells
        self._packed_dtype = np.dtype(np.uint8) if self._is_bits else dtype

    @property
    def can_drop(self) -> bool:
        """Whether there is a full block besides the newest row."""
        return len(self._blocks) > 1

    @property
    def _block_nbytes(self) -> int:
        return self.block_len * self._width * self._packed_dtype.itemsize + ARRAY_OVERHEAD

    def growth_nbytes(self, rows: int) -> int:
        """The most bytes that so many more rows can add now."""
        allocated = len(self._blocks) * self.block_len
        blocks = -(-max(self.next - self.first + rows - allocated, 0) // self.block_len)
        return blocks * self._block_nbytes

    def most_growth_nbytes(self, rows: int) -> int:
        """The most bytes that so many more rows can add at any time."""
        return -(-rows // self.block_len) * self._block_nbytes

    def _pack(self, row: NDArray[Any]) -> NDArray[Any]:
        return np.packbits(row) if self._is_bits else row.reshape(-1)

    def equals(self, number: int, row: NDArray[Any]) -> bool:
        """Whether a row of the tail equals another, bit for bit."""
        block, place = divmod(number - self.first, self.block_len)
        return bool(self._blocks[block][place].tobytes() == self._pack(row).tobytes())

    def append(self, row: NDArray[Any]) -> None:
        """Append a copy of a row."""
        place = (self.next - self.first) % self.block_len
        if place == 0:
            self._add_block(np.zeros((self.block_len, self._width), self._packed_dtype))
        self._blocks[-1][place] = self._pack(row)
        self.next += 1

    def _add_block(self, block: NDArray[Any]) -> None:
        self._blocks.append(block)
        self.nbytes += self._block_nbytes

    def drop_block(self) -> None:
        """Evict the oldest block."""
        del self._blocks[0]
        self.nbytes -= self._block_nbytes
        self.first += self.block_len

    def read(self, numbers: Numbers, places: Numbers, out: NDArray[Any]) -> None:
        """Read rows.

        :param numbers: their numbers, in any order, repeats allowed.
        :param places: the place in ``out`` for each of them.
        :param out: shape (places, cells).
        """
        if not len(numbers):
            return
        blocks, rows = np.divmod(numbers - self.first, self.block_len)
        # Row by row: in a large buffer, hardly two rows of a sample lie in the same block.
        chosen = [
            self._blocks[block][row]
            for block, row in zip(blocks.tolist(), rows.tolist(), strict=True)
        ]
        values = np.concatenate(chosen).reshape(len(chosen), self._width)
        if self._is_bits:
            values = np.unpackbits(values, axis=1, count=self.cells).view(np.bool_)
        out[places] = values

    def pieces(self) -> list[Any]:
        """All rows as bytes and arrays, for a file."""
        return self._blocks

    def describe(self) -> list[int]:
        """The sizes of the pieces, which :meth:`restore` needs."""
        return [self.next - self.first]

    def restore(self, sizes: list[int], take: Callable[[int], bytes]) -> bool:
        """Read what :meth:`pieces` returned; return False for bytes that it cannot have returned.

        :param sizes: from :meth:`describe`.
        :param take: reads a number of bytes.
        """
        (count,) = sizes
        self.next = self.first + count
        for _ in range(-(-count // self.block_len)):
            values = np.frombuffer(take(self._block_nbytes - ARRAY_OVERHEAD), self._packed_dtype)
            self._add_block(values.reshape(self.block_len, self._width).copy())
        return True


class EncodedRows(FixedRows):
    """Rows of uint8, in blocks that are encoded when they are full."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], block_len: int, tail: int
    ) -> None:
        super().__init__(shape, dtype, block_len, tail)
        self._codec = ChangeCodec(self.cells)
        self._open: list[NDArray[Any]] = []  # not yet in a block; the tail is always here
        self._most_open = block_len + tail - 1

    @property
    def can_drop(self) -> bool:  # noqa: D102
        return bool(self._blocks)

    def growth_nbytes(self, rows: int) -> int:  # noqa: D102
        # Encoding a block frees more than it takes.
        return rows * (self.cells + ARRAY_OVERHEAD)

    most_growth_nbytes = growth_nbytes

    def equals(self, number: int, row: NDArray[Any]) -> bool:  # noqa: D102
        return self._open[number - self.next].tobytes() == row.tobytes()

    def append(self, row: NDArray[Any]) -> None:  # noqa: D102
        if len(self._open) == self._most_open:
            block = self._codec.encode(np.stack(self._open[: self.block_len]))
            del self._open[: self.block_len]
            self.nbytes -= self.growth_nbytes(self.block_len)
            self._add_block(block)
        self._open.append(row.reshape(-1).copy())
        self.nbytes += self.growth_nbytes(1)
        self.next += 1

    def _add_block(self, block: Any) -> None:
        self._blocks.append(block)
        self.nbytes += len(block) + BYTES_OVERHEAD

    def drop_block(self) -> None:  # noqa: D102
        self.nbytes -= len(self._blocks[0]) + BYTES_OVERHEAD
        del self._blocks[0]
        self.first += self.block_len

    def read(self, numbers: Numbers, places: Numbers, out: NDArray[Any]) -> None:  # noqa: D102
        for block, rows, row_places in self._by_block(numbers, places):
            if block < len(self._blocks):
                self._codec.decode(self._blocks[block], self.block_len, rows, row_places, out)
            else:
                rows += (block - len(self._blocks)) * self.block_len
                for row, place in zip(rows.tolist(), row_places.tolist(), strict=True):
                    out[place] = self._open[row]

    def _by_block(
        self, numbers: Numbers, places: Numbers
    ) -> Iterator[tuple[int, Numbers, Numbers]]:
        """Sort numbers, and yield the block, the rows in it and their places for each block."""
        order = np.argsort(numbers, kind="stable")
        places = places[order]
        blocks, rows = np.divmod(numbers[order] - self.first, self.block_len)
        starts = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist()]
        for block, start, stop in zip(
            blocks[starts].tolist(), starts, [*starts[1:], len(rows)], strict=True
        ):
            yield block, rows[start:stop], places[start:stop]

    def pieces(self) -> list[Any]:  # noqa: D102
        return self._blocks + self._open

    def describe(self) -> list[int]:  # noqa: D102
        return [len(self._open), *map(len, self._blocks)]

    def restore(self, sizes: list[int], take: Callable[[int], bytes]) -> bool:  # noqa: D102
        open_count, *block_sizes = sizes
        for size in block_sizes:
            block = take(size)
            if not self._codec.check(block, self.block_len):
                return False
            self._add_block(block)
        self._open = [np.frombuffer(take(self.cells), np.uint8) for _ in range(open_count)]
        self.nbytes += self.growth_nbytes(open_count)
        self.next = self.first + len(block_sizes) * self.block_len + open_count
        return min(self.tail, self.next) <= open_count <= self._most_open


def make_rows(shape: tuple[int, ...], dtype: np.dtype[Any], block_len: int, tail: int) -> FixedRows:
    """Create the store for rows of a shape and dtype."""
    if dtype.hasobject:
        raise TypeError(f"observations of dtype {dtype} cannot be stored; use a numeric dtype")
    kind = EncodedRows if dtype == np.uint8 else FixedRows
    return kind(shape, dtype, block_len, tail)
