"""The transitions of one environment: where each is stored, and which are still whole."""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.replay.columns import TightColumn
from medqn_tianshou.replay.rows import RowStore
from medqn_tianshou.replay.trees import Leaves

Times = NDArray[np.int64]

TERMINATED, TRUNCATED = 1, 2
FLAGS = {
    "terminated": np.array([False, True, False, True]),
    "truncated": np.array([False, False, True, True]),
    "done": np.array([False, True, True, True]),
}
"""What each sum of the flags means."""

_START, _ROW, _LEAD = range(3)
_FEWEST_RUNS = 4


class Part:
    """Transitions of one environment, numbered by the time ``t`` at which they were added.

    Observations are kept once, as rows: those of an episode, then the state in which it ended.
    A *run* is a stretch of transitions in which each begins where the one before it ended; mostly
    an episode. The *lead* of a run are older frames of its first stack, kept before its first row
    where that stack does not just repeat one frame.

    All other fields stand in rings: time ``t`` has slot ``t % ring``.

    :param capacity: the most transitions to hold.
    :param stack_num: rows in a stacked observation.
    """

    def __init__(self, capacity: int, stack_num: int) -> None:
        self.maxsize = capacity
        self.stack_num = stack_num
        self._random_state = np.random.RandomState(0)
        self.clear()
        self.clear_statistics()

    def clear(self) -> None:
        """Forget all transitions, and what they need."""
        self.stores: dict[str, RowStore] = {}
        self.columns: dict[str, TightColumn] = {}
        self.ring = 0
        self.first = 0
        """The oldest time still held."""
        self.next = 0
        """The time of the next transition."""
        self.broken = array("q")
        """Last times of the runs that ended without a done flag."""
        self.run_is_open = False
        """Whether the next transition may go on from the newest row."""
        self._runs = np.zeros((_FEWEST_RUNS, 3), np.int64)
        self._first_run = 0
        self._run_count = 0

    def clear_statistics(self) -> None:
        """Forget return and length of the episode so far."""
        self.episode_return: Any = 0.0
        self.episode_length = 0

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def runs(self) -> NDArray[np.int64]:
        """First time, its row, and its lead, for each run that is still held."""
        return self._runs[self._first_run : self._run_count]

    @property
    def run_layout(self) -> list[int]:
        """How the runs are laid out: places taken, the first of them in use, and all there are."""
        return [self._run_count, self._first_run, len(self._runs)]

    def set_runs(self, runs: NDArray[np.int64], layout: list[int]) -> None:
        """Take over runs from a file, in the layout they had there."""
        self._run_count, self._first_run, length = layout
        self._runs = np.zeros((length, 3), np.int64)
        self.runs[:] = runs

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return (
            sum(store.nbytes for store in self.stores.values())
            + sum(column.values.nbytes for column in self.columns.values())
            + self._runs.nbytes
            + self.broken.itemsize * len(self.broken)
        )

    @property
    def next_add_nbytes(self) -> int:
        """The most that the next transition can add, its ring not growing."""
        rows = self.stack_num + 1
        runs = self._runs.nbytes // 4 if self._runs_must_grow else 0
        spare = 3 * _FEWEST_RUNS * self._runs.itemsize + self.broken.itemsize
        return (
            sum(store.growth_nbytes(rows) for store in self.stores.values()) + runs * 5 // 4 + spare
        )

    @property
    def most_add_nbytes(self) -> int:
        """The most that each of any number of transitions can add, rings not growing."""
        # The runs grow once by what is counted, and after that by less than two for each new one.
        runs = self._runs.nbytes // 2 + (2 + _FEWEST_RUNS) * self._runs[0].nbytes
        rows = sum(store.most_growth_nbytes(self.stack_num + 1) for store in self.stores.values())
        return int(rows + runs + self.broken.itemsize)

    def add(self, stacks: Leaves, successor: Leaves, fields: dict[str, Any]) -> None:
        """Add a transition.

        :param stacks: the observation: rows of its stack, or the one row.
        :param successor: the newest row of the next observation.
        :param fields: a value for each column.
        """
        if not self._goes_on(stacks):
            if self.run_is_open and len(self):
                self.broken.append(self.next - 1)
            self._start_run(stacks)
        for name, store in self.stores.items():
            store.append(successor[name])
        for name, column in self.columns.items():
            column[self.next % self.ring] = fields.get(name, column.zero)
        self.next += 1
        self.run_is_open = not fields["flags"]

    def _goes_on(self, stacks: Leaves) -> bool:
        """Whether an observation is the newest successor, all of its stack that counts."""
        if not self.run_is_open:
            return False
        _, row, lead = self._runs[self._run_count - 1].tolist()
        for name, store in self.stores.items():
            newest = store.next - 1
            for back, frame in enumerate(stacks[name][: -1 - self.stack_num : -1]):
                if not store.equals(max(newest - back, row - lead), frame):
                    return False
        return True

    def _start_run(self, stacks: Leaves) -> None:
        lead = min(max(map(_lead_of, stacks.values())), self.stack_num - 1)
        for name, store in self.stores.items():
            row_number = store.next + lead
            for row in stacks[name][-1 - lead :]:
                store.append(row)
        if self._run_count == len(self._runs):
            self._make_room_for_run()
        self._runs[self._run_count] = self.next, row_number, lead
        self._run_count += 1

    def _make_room_for_run(self) -> None:
        if self._runs_must_grow:
            more = len(self._runs) // 4 + _FEWEST_RUNS
            self._runs.resize((len(self._runs) + more, 3), refcheck=False)
        else:
            kept = self.runs.copy()
            self._runs[: len(kept)] = kept
            self._first_run, self._run_count = 0, len(kept)

    @property
    def _runs_must_grow(self) -> bool:
        """Whether all places are taken, and hardly one by a run that is no longer held."""
        return self._run_count == len(self._runs) and self._first_run <= len(self._runs) // 8

    def count_step(self, reward: Any, done: bool) -> tuple[Any, int, int]:
        """Count the newest transition to its episode.

        :return: return and length of the episode if it is done, else zeros; and the time of its
            first transition, or of the first that is held.
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

    def unfinished(self) -> list[int]:
        """Times at which a run ends, but no episode."""
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
        """Tell whether every transition finds all its rows and fields, for what a file says."""
        held = self.next - self.first
        if not (0 <= held <= self.ring <= self.maxsize):
            return False
        runs = self.runs
        if not len(runs):
            return self.next == 0 and not any(store.next for store in self.stores.values())
        starts, rows, leads = runs.T
        ends = np.append(starts[1:], self.next)
        # A run's rows follow those of the run before it: one per transition, and one where it ends.
        lasts = rows + (ends - starts)
        return bool(
            starts[0] <= self.first
            and (ends[:-1] > starts[:-1]).all()
            and ends[-1] >= starts[-1]
            and (leads >= 0).all()
            and (leads < self.stack_num).all()
            and (rows[1:] - leads[1:] == lasts[:-1] + 1).all()
            and all(
                lasts[-1] == store.next - 1 and self._oldest_row >= store.first
                for store in self.stores.values()
            )
            and all(self.first <= time < self.next for time in self.broken)
        )

    @property
    def _oldest_row(self) -> int:
        """The oldest row that a transition still needs."""
        start, row, lead = self._runs[self._first_run].tolist()
        return int(max(row - lead, row + self.first - start - (self.stack_num - 1)))

    def resize_ring(self, ring: int) -> None:
        """Move all fields to rings of another length."""
        times = np.arange(self.first, self.next)
        for column in self.columns.values():
            column.resize(times % max(self.ring, 1), times % ring, ring)
        self.ring = ring

    def forget_oldest(self) -> None:
        """Forget the oldest transition, and the rows that no other needs."""
        self.first += 1
        self._forget_runs()
        while self._can_drop_block(before=self._oldest_row):
            self._drop_block()

    def shrink_ring(self, smallest: int) -> bool:
        """Halve a ring of which less than half is in use.

        :param smallest: the smallest ring to leave.
        :return: False if too much is in use.
        """
        half = self.ring // 2
        if half < max(len(self), smallest):
            return False
        self.resize_ring(half)
        return True

    def forget_block(self) -> bool:
        """Forget the oldest block of rows, and all transitions that need it.

        :return: False if there is no block that the newest transition does not need.
        """
        if not self.stores:
            return False
        newest = self.rows(np.array([self.next - 1]), 0, self.stack_num)
        if not self._can_drop_block(before=int(newest[0, 0])):
            return False
        self._drop_block()
        first_row = next(iter(self.stores.values())).first
        # Of the run that lost rows, the transitions that keep a full stack stay.
        runs = self.runs
        cut = int(np.searchsorted(runs[:, _ROW] - runs[:, _LEAD], first_row, side="right")) - 1
        if cut >= 0:
            start, row, lead = runs[cut]
            whole = start
            if row - lead < first_row:
                whole = start + max(0, first_row + self.stack_num - 1 - row)
            end = runs[cut + 1, _START] if cut + 1 < len(runs) else self.next
            self.first = max(self.first, int(min(whole, end)))
            self._forget_runs()
        return True

    def _can_drop_block(self, before: int) -> bool:
        """Whether there is a block to drop that lies before a row."""
        return all(
            store.can_drop and store.first + store.block_len <= before
            for store in self.stores.values()
        )

    def _drop_block(self) -> None:
        for store in self.stores.values():
            store.drop_block()

    def _forget_runs(self) -> None:
        # The newest run stays, even without a transition: the next one may go on with it.
        second = self._first_run + 1
        if second < self._run_count and self._runs[second, _START] <= self.first:
            self._first_run += int(np.searchsorted(self.runs[1:, _START], self.first, side="right"))
            kept = self.runs
            if self._first_run > len(kept):
                self.set_runs(kept, [len(kept), 0, max(2 * len(kept), _FEWEST_RUNS)])
        while self.broken and self.broken[0] < self.first:
            del self.broken[0]

    def times(self, slots: NDArray[np.int64]) -> Times:
        """The times in some slots of the ring; below ``first`` where a slot holds none."""
        newest = self.next - 1
        return np.where(slots < self.ring, newest - (newest - slots) % max(self.ring, 1), -1)

    def before(self, times: Times) -> Times:
        """The time before each, or itself where a run, or what is held, begins."""
        starts = np.maximum(self.runs[self._run_of(times), _START], self.first)
        return np.maximum(times - 1, starts)

    def after(self, times: Times) -> Times:
        """The time after each, or itself where a run ends."""
        ends = np.append(self.runs[1:, _START], self.next)
        return np.minimum(times + 1, ends[self._run_of(times)] - 1)

    def rows(self, times: Times, shift: int | Times, stack_num: int) -> NDArray[np.int64]:
        """The rows of the observations at some times, shape (times, stack_num).

        :param times: the times.
        :param shift: 0 for the observation, 1 for its successor; one, or one for each time.
        :param stack_num: rows in a stack; the first row of a run stands in for those before it.
        """
        runs = self.runs[self._run_of(times)]
        newest = runs[:, _ROW] + times - runs[:, _START] + shift
        held = next(iter(self.stores.values())).first  # for stacks higher than the part's own
        oldest = np.maximum(runs[:, _ROW] - runs[:, _LEAD], held)
        return np.maximum(newest[:, None] + np.arange(1 - stack_num, 1), oldest[:, None])

    def _run_of(self, times: Times) -> NDArray[np.intp]:
        return np.searchsorted(self.runs[1:, _START], times, side="right")


def _lead_of(stack: NDArray[Any]) -> int:
    """How many rows before the newest are needed to rebuild a stack, whose oldest may repeat."""
    oldest = stack[0].tobytes()
    repeats = 1
    while repeats < len(stack) and stack[repeats].tobytes() == oldest:
        repeats += 1
    return len(stack) - repeats
