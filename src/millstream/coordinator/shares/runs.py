"""Neighbouring records in the same state as one run: a million untouched records cost one entry."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

import msgspec

from millstream.coordinator.shares.states import RecordState


class Run(msgspec.Struct):
    """`due_ms`: when the lock of an acquired run ends, or when the delay of an available one ends."""

    first: int
    last: int
    state: RecordState
    count: int = 0
    due_ms: int = 0
    owner: str = ""
    priority: int = 0

    def __len__(self) -> int:
        return self.last - self.first + 1

    def continues(self, before: "Run") -> bool:
        """Whether the two can be joined: counts and owners of settled records no longer matter."""
        return (
            before.last + 1 == self.first
            and before.state is self.state
            and (
                self.state.is_final
                or (
                    before.count == self.count
                    and before.due_ms == self.due_ms
                    and before.owner == self.owner
                    and before.priority == self.priority
                )
            )
        )


class Runs:
    """Disjoint runs in the order of their offsets.

    First offsets are in a sorted list: lookups are binary searches, and the list is short enough for insertions.
    """

    __slots__ = ("_by_first", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._by_first: dict[int, Run] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Run]:
        return map(self._by_first.__getitem__, self._firsts)

    @property
    def first(self) -> Run | None:
        return self._by_first[self._firsts[0]] if self._firsts else None

    @property
    def end(self) -> int:
        """The offset after the last run; -1 if there is none."""
        return self._by_first[self._firsts[-1]].last + 1 if self._firsts else -1

    def starting_at(self, offset: int) -> Run | None:
        return self._by_first.get(offset)

    def at(self, offset: int) -> Run | None:
        """The run that contains `offset`."""
        run = self._by_first.get(offset)
        if run is not None:
            return run
        place = bisect_right(self._firsts, offset)
        if not place:
            return None
        run = self._by_first[self._firsts[place - 1]]
        return run if offset <= run.last else None

    def overlapping(self, first: int, last: int) -> list[Run]:
        low, high = self._between(first, last)
        return [self._by_first[each] for each in self._firsts[low:high]]

    def count(self, first: int, last: int) -> int:
        """How many runs overlap these offsets."""
        low, high = self._between(first, last)
        return high - low

    def _between(self, first: int, last: int) -> tuple[int, int]:
        """Where the runs that overlap these offsets are in the list."""
        firsts = self._firsts
        low, high = bisect_right(firsts, first), bisect_right(firsts, last)
        if low and self._by_first[firsts[low - 1]].last >= first:
            low -= 1
        return low, high

    def following(self, offset: int) -> Iterator[Run]:
        """Runs from the one that contains `offset`, or the next, on. They must not change during the iteration."""
        low = bisect_right(self._firsts, offset)
        if low and self._by_first[self._firsts[low - 1]].last >= offset:
            low -= 1
        return (self._by_first[self._firsts[place]] for place in range(low, len(self._firsts)))

    def add(self, run: Run) -> None:
        """No other run may cover offsets of `run`."""
        insort(self._firsts, run.first)
        self._by_first[run.first] = run

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs between these two offsets, after splitting those that cross them."""
        self._cut_before(first)
        self._cut_before(last + 1)
        firsts, by_first = self._firsts, self._by_first
        low, high = bisect_left(firsts, first), bisect_right(firsts, last)
        return [by_first[each] for each in firsts[low:high]]

    def put(self, first: int, last: int, runs: list[Run]) -> None:
        """Put these, which cover what lay between these offsets after `cut`, in its place."""
        firsts = self._firsts
        low, high = bisect_left(firsts, first), bisect_right(firsts, last)
        for run in runs:
            self._by_first[run.first] = run
        # All at once: each insertion into a long list moves the rest of it.
        firsts[low:high] = [run.first for run in runs]

    def gaps(self, first: int, last: int) -> int:
        """How many stretches between these offsets no run covers."""
        position, found = first, 0
        for run in self.overlapping(first, last):
            found += run.first > position
            position = run.last + 1
        return found + (position <= last)

    def join(self, first: int, last: int) -> None:
        """Join equal neighbours between these offsets and at their borders."""
        firsts, by_first = self._firsts, self._by_first
        low, high = self._between(first - 1, last + 1)
        left: list[int] = []
        kept: Run | None = None
        for each in firsts[low:high]:
            run = by_first[each]
            if kept is not None and run.continues(kept):
                kept.last = run.last
                del by_first[each]
            else:
                kept = run
                left.append(each)
        if len(left) < high - low:
            # All at once: each deletion from a long list moves the rest of it.
            firsts[low:high] = left

    def drop_before(self, offset: int) -> None:
        """Forget everything before `offset`."""
        self._cut_before(offset)
        place = bisect_left(self._firsts, offset)
        for first in self._firsts[:place]:
            del self._by_first[first]
        del self._firsts[:place]

    def drop_from(self, offset: int) -> None:
        """Forget `offset` and everything after it."""
        self._cut_before(offset)
        place = bisect_left(self._firsts, offset)
        for first in self._firsts[place:]:
            del self._by_first[first]
        del self._firsts[place:]

    def _cut_before(self, offset: int) -> None:
        run = self.at(offset)
        if run is not None and run.first < offset:
            rest = msgspec.structs.replace(run, first=offset)
            run.last = offset - 1
            self.add(rest)
