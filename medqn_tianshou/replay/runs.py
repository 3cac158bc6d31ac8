"""Runs: uninterrupted sequences of transitions of one environment."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

START, ROW, LEAD = range(3)  # a run: the time of its first transition, the row of that, its lead
_FEWEST = 4
_ENTRY_NBYTES = 3 * 8


class Runs:
    """The runs of a part, oldest first, in a table that grows and is compacted as needed.

    In a *run*, each transition begins where the one before it ended; mostly, a run is an episode.
    The rows of a run follow each other: one per transition, and one for the state in which the run
    ended. The *lead* of a run counts older frames of its first stack, which are stored before its
    first row unless that stack only repeats one frame.
    """

    def __init__(self) -> None:
        self._entries = np.zeros((_FEWEST, 3), np.int64)
        self._first = 0
        self._count = 0

    @property
    def table(self) -> NDArray[np.int64]:
        """Start, row and lead of each run, shape (runs, 3)."""
        return self._entries[self._first : self._count]

    @property
    def newest(self) -> list[int]:
        """Start, row and lead of the run that was added last; quicker than from the table."""
        run: list[int] = self._entries[self._count - 1].tolist()
        return run

    def of(self, times: Times) -> NDArray[np.intp]:
        """The run of each time, as a row of the table."""
        return np.searchsorted(self.table[1:, START], times, side="right")

    def ends(self, next_time: int) -> Times:
        """The time after the last transition of each run."""
        return np.append(self.table[1:, START], next_time)

    def append(self, start: int, row: int, lead: int) -> None:
        """Add a run."""
        if self._must_grow:
            more = len(self._entries) // 4 + _FEWEST
            self._entries.resize((len(self._entries) + more, 3), refcheck=False)
        elif self._count == len(self._entries):
            kept = self.table.copy()
            self._entries[: len(kept)] = kept
            self._first, self._count = 0, len(kept)
        self._entries[self._count] = start, row, lead
        self._count += 1

    @property
    def _must_grow(self) -> bool:
        """Whether the table is full, and evicted runs take hardly any of it."""
        full = self._count == len(self._entries)
        return full and self._first <= len(self._entries) // 8

    def evict(self, first_time: int) -> None:
        """Evict the runs that ended before a time, but never the newest, which may continue."""
        second = self._first + 1
        if second < self._count and self._entries[second, START] <= first_time:
            self._first += int(np.searchsorted(self.table[1:, START], first_time, side="right"))
            kept = self.table
            if self._first > len(kept):
                self.restore(kept, [len(kept), 0, max(2 * len(kept), _FEWEST)])

    def first_complete(self, first_row: int, stack_num: int, next_time: int) -> int:
        """The first time that has a full stack, once the rows before ``first_row`` are evicted."""
        table = self.table
        cut = int(np.searchsorted(table[:, ROW] - table[:, LEAD], first_row, side="right")) - 1
        if cut < 0:
            return 0
        time, row, lead = table[cut].tolist()
        if row - lead < first_row:
            time += max(0, first_row + stack_num - 1 - row)
        return int(min(time, self.ends(next_time)[cut]))

    @property
    def nbytes(self) -> int:
        """Bytes that the table takes."""
        return self._entries.nbytes

    @property
    def next_growth_nbytes(self) -> int:
        """The most bytes that the next run can add."""
        growth = self.nbytes // 4 if self._must_grow else 0
        return growth * 5 // 4 + _FEWEST * _ENTRY_NBYTES

    @property
    def most_growth_nbytes(self) -> int:
        """The most bytes that each of any number of runs can add, on average."""
        # The table grows once by what is counted, and then by less than two entries for each run.
        return self.nbytes // 2 + (2 + _FEWEST) * _ENTRY_NBYTES

    @property
    def layout(self) -> list[int]:
        """How the table is laid out: entries used, the first of them still needed, and all."""
        return [self._count, self._first, len(self._entries)]

    def restore(self, table: NDArray[np.int64], layout: list[int]) -> None:
        """Take over the runs of another table, in the layout that they had there."""
        self._count, self._first, length = layout
        self._entries = np.zeros((length, 3), np.int64)
        self.table[:] = table

    @staticmethod
    def is_layout(layout: list[int]) -> bool:
        """Whether a table can have this layout; see :meth:`append` and :meth:`evict`."""
        count, first, length = layout
        return first <= count <= length <= 4 * (count - first) + 2 * _FEWEST

    def is_sound(self, first_time: int, next_time: int, next_row: int, stack_num: int) -> bool:
        """Whether runs from a file follow each other, and end with the newest row."""
        starts, rows, leads = self.table.T
        ends = self.ends(next_time)
        lasts = rows + (ends - starts)
        return bool(
            starts[0] <= first_time
            and (ends[:-1] > starts[:-1]).all()
            and ends[-1] >= starts[-1]
            and (leads >= 0).all()
            and (leads < stack_num).all()
            and (rows[1:] - leads[1:] == lasts[:-1] + 1).all()
            and lasts[-1] == next_row - 1
        )


def lead_of(stack: NDArray[Any]) -> int:
    """The number of rows before the newest that a stack needs; its oldest row may repeat."""
    oldest = stack[0].tobytes()
    return len(stack) - next(
        (i for i, row in enumerate(stack) if row.tobytes() != oldest), len(stack)
    )
