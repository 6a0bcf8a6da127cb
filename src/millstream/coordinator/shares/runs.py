"""Neighbouring records in the same state as one run: a million records that nothing has happened to cost one entry."""

from collections.abc import Iterator
from itertools import pairwise

import msgspec
from sortedcontainers import SortedDict

from millstream.coordinator.shares.states import RecordState


class Run(msgspec.Struct):
    """`due_ms`: when the lock of an acquired run ends, or before when an available one is not delivered."""

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
        """Whether the two can be one: counts and owners of what is settled no longer matter."""
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
    """Disjoint runs in the order of their offsets; finding, cutting and joining take logarithmic time."""

    __slots__ = ("_by_first",)

    def __init__(self) -> None:
        self._by_first: SortedDict[int, Run] = SortedDict()

    def __len__(self) -> int:
        return len(self._by_first)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._by_first.values())

    @property
    def first(self) -> Run | None:
        return self._place(0) if self._by_first else None

    def starting_at(self, offset: int) -> Run | None:
        run: Run | None = self._by_first.get(offset)
        return run

    def at(self, offset: int) -> Run | None:
        """The run that `offset` is in."""
        run = self.starting_at(offset)
        if run is not None:
            return run
        position = self._by_first.bisect_right(offset)
        if not position:
            return None
        run = self._place(position - 1)
        return run if offset <= run.last else None

    def overlapping(self, first: int, last: int) -> list[Run]:
        before = self.at(first)
        lowest = first if before is None else before.first
        by_first = self._by_first
        return [by_first[each] for each in by_first.irange(lowest, last)]

    def following(self, offset: int) -> Iterator[Run]:
        """Runs from the one that `offset` is in, or the next, on. Nothing may be changed meanwhile."""
        before = self.at(offset)
        by_first = self._by_first
        return (by_first[each] for each in by_first.irange(offset if before is None else before.first))

    def add(self, run: Run) -> None:
        """`run` touches offsets that no other run covers."""
        self._by_first[run.first] = run

    def remove(self, run: Run) -> None:
        del self._by_first[run.first]

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs between these two offsets, with borders there."""
        self._cut_before(first)
        self._cut_before(last + 1)
        by_first = self._by_first
        return [by_first[each] for each in by_first.irange(first, last)]

    def join(self, first: int, last: int) -> None:
        """Make one of neighbours that are alike, between these offsets and at their borders."""
        runs = self.overlapping(first - 1, last + 1)
        for before, after in pairwise(runs):
            if after.continues(before):
                self.remove(after)
                self.remove(before)
                # The later one stands in the list of the next step.
                after.first = before.first
                self.add(after)

    def drop_before(self, offset: int) -> None:
        """Forget what lies before `offset`."""
        self._cut_before(offset)
        while self._by_first and self._by_first.peekitem(0)[0] < offset:
            self._by_first.popitem(0)

    def _place(self, position: int) -> Run:
        run: Run = self._by_first.peekitem(position)[1]
        return run

    def _cut_before(self, offset: int) -> None:
        run = self.at(offset)
        if run is not None and run.first < offset:
            rest = msgspec.structs.replace(run, first=offset)
            run.last = offset - 1
            self.add(rest)
