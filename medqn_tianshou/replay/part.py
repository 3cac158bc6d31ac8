"""The transitions of one environment: where each is stored, and which are still complete."""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.replay.columns import TightColumn
from medqn_tianshou.replay.rows import FixedRows
from medqn_tianshou.replay.runs import LEAD, ROW, START, Runs, Times, lead_of
from medqn_tianshou.replay.trees import Leaves

TERMINATED, TRUNCATED = 1, 2
FLAGS = {
    "terminated": np.array([False, True, False, True]),
    "truncated": np.array([False, False, True, True]),
    "done": np.array([False, True, True, True]),
}
"""The meaning of each sum of the flags."""


class Part:
    """Transitions of one environment, numbered by the time ``t`` at which they were added.

    Observations are stored once, as rows: those of an episode, then the state in which it ended;
    :class:`~medqn_tianshou.replay.runs.Runs` maps times to rows. All other fields are stored in
    rings: time ``t`` has slot ``t % ring``.

    :param capacity: the maximum number of transitions.
    :param stack_num: rows in a stacked observation.
    """

    def __init__(self, capacity: int, stack_num: int) -> None:
        self.maxsize = capacity
        self.stack_num = stack_num
        self._random_state = np.random.RandomState(0)
        self.clear()
        self.clear_statistics()

    def clear(self) -> None:
        """Remove all transitions and their storage."""
        self.stores: dict[str, FixedRows] = {}
        self.columns: dict[str, TightColumn] = {}
        self.ring = 0
        self.first = 0
        """The oldest time that is still stored."""
        self.next = 0
        """The time of the next transition."""
        self.runs = Runs()
        self.broken = array("q")
        """Last times of the runs that ended without a done flag."""
        self.run_is_open = False
        """Whether the next transition may continue from the newest row."""
        self.checked = 0
        """The time before which no value is missing."""

    def clear_statistics(self) -> None:
        """Reset return and length of the current episode."""
        self.episode_return: Any = 0.0
        self.episode_length = 0

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def nbytes(self) -> int:
        """Bytes stored."""
        return (
            sum(store.nbytes for store in self.stores.values())
            + sum(column.values.nbytes for column in self.columns.values())
            + self.runs.nbytes
            + self.broken.itemsize * len(self.broken)
        )

    @property
    def next_add_nbytes(self) -> int:
        """The maximum bytes that the next transition can add, if its ring does not grow."""
        rows = sum(store.growth_nbytes(self.stack_num + 1) for store in self.stores.values())
        return rows + self.runs.next_growth_nbytes + self.broken.itemsize

    @property
    def most_add_nbytes(self) -> int:
        """The most bytes that each of any number of transitions can add, if no ring grows."""
        rows = sum(store.most_growth_nbytes(self.stack_num + 1) for store in self.stores.values())
        return int(rows + self.runs.most_growth_nbytes + self.broken.itemsize)

    def add(self, stacks: Leaves, successor: Leaves, fields: dict[str, Any]) -> None:
        """Add a transition.

        :param stacks: the observation: the rows of its stack, or its only row.
        :param successor: the newest row of the next observation.
        :param fields: a value for each column.
        """
        if not self._continues(stacks):
            if self.run_is_open and len(self):
                self.broken.append(self.next - 1)
            self._start_run(stacks)
        for name, store in self.stores.items():
            store.append(successor[name])
        for name, column in self.columns.items():
            column[self.next % self.ring] = fields.get(name, column.zero)
        self.next += 1
        self.run_is_open = not fields["flags"]

    def _continues(self, stacks: Leaves) -> bool:
        """Whether an observation equals the newest successor in the relevant frames."""
        if not self.run_is_open:
            return False
        _, row, lead = self.runs.newest
        for name, store in self.stores.items():
            newest = store.next - 1
            for back, frame in enumerate(stacks[name][: -1 - self.stack_num : -1]):
                if not store.equals(max(newest - back, row - lead), frame):
                    return False
        return True

    def _start_run(self, stacks: Leaves) -> None:
        lead = min(max(map(lead_of, stacks.values())), self.stack_num - 1)
        for name, store in self.stores.items():
            row_number = store.next + lead
            for row in stacks[name][-1 - lead :]:
                store.append(row)
        self.runs.append(self.next, row_number, lead)

    def count_step(self, reward: Any, done: bool) -> tuple[Any, int, int]:
        """Count the newest transition as part of its episode.

        :return: return and length of the episode if it is done, else zeros; and the time of its
            first transition, or of the first that is stored.
        """
        self.episode_return = self.episode_return + reward
        self.episode_length += 1
        start = max(self.next - self.episode_length, 0)
        if start < self.first and len(self) < self.maxsize:
            start = self.first
        if not done:
            nothing = 0.0 if isinstance(reward, float) else np.zeros_like(reward)
            return nothing, 0, start
        statistics = self.episode_return, self.episode_length
        self.clear_statistics()
        return *statistics, start

    def resize_ring(self, ring: int) -> None:
        """Move all fields to rings of another length."""
        times = np.arange(self.first, self.next)
        for column in self.columns.values():
            column.resize(times % max(self.ring, 1), times % ring, ring)
        self.ring = ring

    def shrink_ring(self, smallest: int) -> bool:
        """Halve a ring that is less than half full; return False if it is fuller or too small.

        A slot stays free: the next transition may already have been counted on.
        """
        half = self.ring // 2
        shrinks = half >= max(len(self) + 1, smallest)
        if shrinks:
            self.resize_ring(half)
        return shrinks

    def evict_oldest(self) -> None:
        """Evict the oldest transition, and the rows that no other transition needs."""
        self.first += 1
        self._evict_runs()
        while self._drop_block(before=self._oldest_row):
            pass

    def evict_block(self) -> bool:
        """Evict the oldest block of rows, and all transitions that need it.

        :return: False if the newest transition needs every block.
        """
        if not self.next:
            return False
        newest = self.rows(np.array([self.next - 1]), 0, self.stack_num)
        if not self._drop_block(before=int(newest[0, 0])):
            return False
        first_row = next(iter(self.stores.values())).first
        complete = self.runs.first_complete(first_row, self.stack_num, self.next)
        self.first = max(self.first, complete)
        self._evict_runs()
        return True

    @property
    def _oldest_row(self) -> int:
        """The oldest row that a transition still needs."""
        start, row, lead = self.runs.table[0].tolist()
        return int(max(row - lead, row + self.first - start - (self.stack_num - 1)))

    def _drop_block(self, before: int) -> bool:
        """Drop the oldest block if it ends before a row; return whether it does."""
        stores = self.stores.values()
        if not all(store.can_drop and store.first + store.block_len <= before for store in stores):
            return False
        for store in stores:
            store.drop_block()
        return True

    def _evict_runs(self) -> None:
        self.runs.evict(self.first)
        while self.broken and self.broken[0] < self.first:
            del self.broken[0]

    def times(self, slots: NDArray[np.int64]) -> Times:
        """The times in some slots of the ring; below ``first`` where a slot is empty."""
        newest = self.next - 1
        return np.where(slots < self.ring, newest - (newest - slots) % max(self.ring, 1), -1)

    def before(self, times: Times) -> Times:
        """The time before each, or itself where its run begins, or where older ones are evicted."""
        starts = np.maximum(self.runs.table[self.runs.of(times), START], self.first)
        return np.maximum(times - 1, starts)

    def after(self, times: Times) -> Times:
        """The time after each, or itself where its run ends."""
        return np.minimum(times + 1, self.runs.ends(self.next)[self.runs.of(times)] - 1)

    def rows(self, times: Times, shift: int | Times, stack_num: int) -> NDArray[np.int64]:
        """The rows of the observations at some times, shape (times, stack_num).

        :param shift: 0 for the observation, 1 for its successor; one, or one for each time.
        :param stack_num: rows in a stack; the first row of a run stands in for those before it.
        """
        runs = self.runs.table[self.runs.of(times)]
        newest = runs[:, ROW] + times - runs[:, START] + shift
        stored = next(iter(self.stores.values())).first  # for stacks higher than the part's own
        oldest = np.maximum(runs[:, ROW] - runs[:, LEAD], stored)
        return np.maximum(newest[:, None] + np.arange(1 - stack_num, 1), oldest[:, None])

    def unfinished(self) -> list[int]:
        """Times at which a run ends without the end of an episode."""
        return [*self.broken, *([self.next - 1] if self.run_is_open and len(self) else [])]

    def with_full_stack(self) -> Times:
        """Times with as many predecessors in their run as make a stack."""
        times = oldest = np.arange(self.first, self.next)
        if not len(times):
            return times
        for _ in range(self.stack_num - 2):
            oldest = self.before(oldest)
        return np.asarray(times[self.before(oldest) != oldest])

    def is_sound(self) -> bool:
        """Whether every transition finds all its rows and fields, for a part from a file."""
        if not (0 <= self.next - self.first <= self.ring <= self.maxsize):
            return False
        stores = self.stores.values()
        if not len(self.runs.table):
            return self.next == 0 and not any(store.next for store in stores)
        return all(
            self._oldest_row >= store.first
            and self.runs.is_sound(self.first, self.next, store.next, self.stack_num)
            for store in stores
        ) and all(self.first <= time < self.next for time in self.broken)
