"""Lossless compression of a block of uint8 rows, such as frames.

A block is encoded as the bytes that differ from the row before: the gaps between them and their
new values, both compressed by zstandard.
"""

import threading
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from medqn_tianshou.files.compiling import compiled

ZSTD_LEVEL = 3
SPLIT_NBYTES = 24_576
"""Bytes of changes, before compression, above which a block is split for faster reads."""
_CHANGES, _PLAIN, _SPLIT = b"\0", b"\1", b"\2"
_ESCAPE = 255  # gap byte: advance by 255; another gap byte follows


class DamagedBlockError(ValueError):
    """A block that :class:`ChangeCodec` cannot have written."""


class _PerThread(threading.local):
    """Zstandard's objects, which threads must not share: each thread runs __init__ again."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_ZSTD = _PerThread()


class ChangeCodec:
    """Encodes the bytes that differ from the row before; in the first row, from the byte before.

    A block with many changes is split in halves, so that reading a row stays fast. Rows that would
    not become smaller, such as noise, are stored unchanged.

    :param cells: bytes in a row.
    """

    def __init__(self, cells: int) -> None:
        self.cells = cells

    def encode(self, rows: NDArray[np.uint8]) -> bytes:
        """Encode a block of shape (rows, cells)."""
        changes = self._find_changes(rows)
        compressed = _ZSTD.compress(changes)
        if len(compressed) >= rows.size:
            return _PLAIN + rows.tobytes()
        if len(changes) > SPLIT_NBYTES and len(rows) > 1:
            half = len(rows) // 2
            first = self.encode(rows[:half])
            return _SPLIT + len(first).to_bytes(4, "little") + first + self.encode(rows[half:])
        return _CHANGES + compressed

    def _find_changes(self, rows: NDArray[Any]) -> bytes:
        gaps = np.empty(len(rows) * (self.cells + self.cells // _ESCAPE + 1), np.uint8)
        values = np.empty(rows.size, np.uint8)
        counts = np.empty(len(rows), np.uint32)
        # Padding with zeros to whole words lets the search skip 8 bytes at a time.
        padded = np.zeros((len(rows), -(-self.cells // 8) * 8), np.uint8)
        padded[:, : self.cells] = rows
        gap_count, value_count = _find_changes(
            padded, padded.view(np.uint64), self.cells, gaps, values, counts
        )
        arrays = np.uint32(gap_count), counts, gaps[:gap_count], values[:value_count]
        return b"".join(array.tobytes() for array in arrays)

    def decode(
        self,
        block: Any,
        length: int,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        out: NDArray[np.uint8],
    ) -> None:
        """Decode some rows of a block.

        :param block: what :meth:`encode` returned.
        :param length: the number of rows in it.
        :param rows: which rows, in ascending order, repeats allowed.
        :param places: the place in ``out`` for each of them.
        :param out: shape (places, cells).
        """
        kind = block[:1]
        if kind == _CHANGES:
            try:
                changes = np.frombuffer(_ZSTD.decompress(block[1:]), np.uint8)
            except zstandard.ZstdError as error:
                raise DamagedBlockError(f"a block of frames is damaged ({error})") from None
            if not _apply_changes(changes, length, rows, places, out):
                raise DamagedBlockError("a block of frames is damaged")
        elif kind == _SPLIT:
            half = length // 2
            cut = int(np.searchsorted(rows, half))
            first, second = _halves(memoryview(block))
            if cut:
                self.decode(first, half, rows[:cut], places[:cut], out)
            if cut < len(rows):
                self.decode(second, length - half, rows[cut:] - half, places[cut:], out)
        else:
            plain = np.frombuffer(block, np.uint8, offset=1).reshape(length, self.cells)
            out[places] = plain[rows]

    def check(self, block: bytes, length: int) -> bool:
        """Whether a block from a file can decode to rows of this size."""
        kind = block[:1]
        if kind == _PLAIN:
            return len(block) == 1 + length * self.cells
        if kind == _SPLIT:
            half = length // 2
            first, second = _halves(block)
            return half > 0 and self.check(first, half) and self.check(second, length - half)
        try:
            size = zstandard.get_frame_parameters(block[1:]).content_size
        except zstandard.ZstdError:
            return False
        # At most a gap byte, with its escapes, and a value for each cell.
        largest = 4 + length * (4 + 2 * self.cells + self.cells // _ESCAPE + 1)
        return kind == _CHANGES and 4 + 4 * length <= size <= largest


def _halves(block: Any) -> tuple[Any, Any]:
    middle = 5 + int.from_bytes(block[1:5], "little")
    return block[5:middle], block[middle:]


@compiled(nogil=True)
def _find_changes(rows, words, cells, gaps, values, counts):  # type: ignore[no-untyped-def]  # pragma: no cover
    gap_count = 0
    value_count = 0
    for row in range(rows.shape[0]):
        expected = 0  # the cell that follows the last change
        first_value = value_count
        for word in range(words.shape[1]):
            if row > 0 and words[row, word] == words[row - 1, word]:
                continue
            for cell in range(8 * word, min(8 * word + 8, cells)):
                if row > 0:
                    before = rows[row - 1, cell]
                else:
                    before = rows[0, cell - 1] if cell > 0 else np.uint8(0)
                if rows[row, cell] == before:
                    continue
                gap = cell - expected
                while gap >= 255:
                    gaps[gap_count] = 255
                    gap_count += 1
                    gap -= 255
                gaps[gap_count] = gap
                gap_count += 1
                values[value_count] = rows[row, cell]
                value_count += 1
                expected = cell + 1
        counts[row] = value_count - first_value
    return gap_count, value_count


@compiled(nogil=True)
def _apply_changes(changes, length, rows, places, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Undo _find_changes; return False for bytes that it cannot have written."""
    one = np.uint64(1)
    escape = np.uint64(255)
    size = np.uint64(changes.size)
    cells = np.uint64(out.shape[1])
    header = np.uint64(4 * (length + 1))
    if size < header:
        return False
    gap_count = np.uint64(0)
    for byte in range(4):
        gap_count |= np.uint64(changes[byte]) << np.uint64(8 * byte)
    gap = header
    value = header + gap_count
    gap_end = value
    current = np.zeros(out.shape[1], np.uint8)
    filled = np.uint64(0)
    last = np.uint8(0)
    done = 0
    for row in range(length):
        if done == len(rows):
            break
        count = np.uint64(0)
        for byte in range(4):
            count |= np.uint64(changes[4 * (row + 1) + byte]) << np.uint64(8 * byte)
        if value + count > size:
            return False
        cell = np.uint64(0)
        for _ in range(count):
            step = escape
            while step == escape:
                if gap >= gap_end:
                    return False
                step = np.uint64(changes[gap])
                gap += one
                cell += step
            if cell >= cells:
                return False
            if row == 0:  # the cells up to here repeat the change before
                for index in range(filled, cell):
                    current[index] = last
                last = changes[value]
                filled = cell
            current[cell] = changes[value]
            value += one
            cell += one
        if row == 0:
            for index in range(filled, cells):
                current[index] = last
        while done < len(rows) and rows[done] == row:
            target = out[places[done]]
            for index in range(current.size):
                target[index] = current[index]
            done += 1
    return done == len(rows)
