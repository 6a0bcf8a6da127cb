"""The states of all records of a queue, as runs, and the only place where they change.

Runs cover the offsets from `start` to before `end`. Records from `end` on have no run yet: they are available.
"""

from collections.abc import Callable, Sequence

import msgspec

from millstream.coordinator.shares.index import RunHeap
from millstream.coordinator.shares.queue_values import Changes
from millstream.coordinator.shares.runs import Run, Runs
from millstream.coordinator.shares.states import RecordState, StateBatch

AVAILABLE, ACQUIRED, ARCHIVING = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVING

HIGHEST_PRIORITY = 9
# Available, but not before an earlier record is settled.
PARKED_MS = 1 << 62


class Ledger:
    def __init__(self, start: int, stored: Sequence[StateBatch], is_ready: Callable[[Run], bool]) -> None:
        """`is_ready` returns whether an available run without a deadline may be delivered."""
        self.start = start
        self.end = start
        self.locked = 0
        self.final = 0
        self.archiving = 0
        self.held: dict[str, int] = {}
        """Locked records by their owner."""
        self.runs = Runs()
        self._is_ready = is_ready
        self._ready = RunHeap(self.runs, self._ready_key)
        self._timed = RunHeap(self.runs, _due_key)
        self._dirty: list[tuple[int, int]] = []
        self._load(stored)
        self._stored_start = self.start

    def first_ready(self) -> Run | None:
        found = self._ready.first()
        return None if found is None else found[1]

    def first_timed(self) -> tuple[int, Run] | None:
        return self._timed.first()

    def available(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """First offset, last offset and count of available stretches here, including delayed ones."""
        return [
            (max(run.first, first), min(run.last, last), run.count)
            for run in self.runs.overlapping(first, last)
            if run.state is AVAILABLE
        ]

    def is_ready(self, run: Run) -> bool:
        return run.state is AVAILABLE and run.due_ms == 0 and self._is_ready(run)

    # -- changes

    def set(
        self,
        first: int,
        last: int,
        state: RecordState,
        *,
        count: int | None = None,
        due_ms: int = 0,
        owner: str = "",
    ) -> None:
        for run in self.runs.cut(first, last):
            length = len(run)
            if run.state is ACQUIRED:
                self._hold(run.owner, -length)
            if state is ACQUIRED:
                self._hold(owner, length)
            self._count(run.state, -length)
            self._count(state, length)
            run.state, run.due_ms, run.owner = state, due_ms, owner
            if count is not None:
                run.count = count
        self._dirty.append((first, last))
        self.changed(first, last)

    def set_available(self, first: int, last: int, state: RecordState) -> list[tuple[int, int, int]]:
        """Set all that is available here, as one change. The stretches of it, with their counts."""
        if first > last or not self.available(first, last):
            return []
        found: list[tuple[int, int, int]] = []
        for run in self.runs.cut(first, last):
            if run.state is AVAILABLE:
                found.append((run.first, run.last, run.count))
                self._count(state, len(run))
                run.state, run.due_ms, run.owner = state, 0, ""
        self._dirty += [(low, high) for low, high, _ in found]
        self.changed(first, last)
        return found

    def _count(self, state: RecordState, length: int) -> None:
        if state.is_final:
            self.final += length
        elif state is ARCHIVING:
            self.archiving += length

    def _hold(self, owner: str, length: int) -> None:
        self.locked += length
        held = self.held.pop(owner, 0) + length
        if held:
            self.held[owner] = held

    def delay(self, first: int, last: int, due_ms: int) -> None:
        """Set another deadline for these records, which need not be stored."""
        for run in self.runs.cut(first, last):
            run.due_ms = due_ms
        self.changed(first, last)

    def forget_marks(self) -> None:
        """Forget what the records themselves said: priorities, delays before a first delivery, and places in line."""
        for run in self.runs:
            run.priority = 0
            if run.state is AVAILABLE and (run.count == 0 or run.due_ms == PARKED_MS):
                run.due_ms = 0
        self.changed(self.start, self.end)

    def prolong(self, owner: str, first: int, last: int, due_ms: int) -> None:
        """Locks that this owner has here end no earlier than then."""
        for run in self.runs.overlapping(first, last):
            if run.state is ACQUIRED and run.owner == owner:
                run.due_ms = max(run.due_ms, due_ms)
        self.changed(first, last)

    def changed(self, first: int, last: int) -> None:
        """Join runs here if possible, and index them and their neighbours again."""
        self.runs.join(first, last)
        changed = self.runs.overlapping(first - 1, last + 1)
        self._ready.note(changed)
        self._timed.note(changed)

    def extend(self, upto: int) -> None:
        """Cover offsets from `end` to before `upto` with an available run."""
        if upto > self.end:
            first, self.end = self.end, upto
            self.runs.add(Run(first, upto - 1, AVAILABLE))
            self.changed(first, upto - 1)

    def advance(self) -> None:
        """Move the start past final records."""
        start = self.start
        for run in self.runs:
            if not run.state.is_final:
                break
            self.final -= len(run)
            start = run.last + 1
        else:
            start = self.end
        if start > self.start:
            self.runs.drop_before(start)
            self.start = start

    # -- storing

    @property
    def has_changes(self) -> bool:
        return bool(self._dirty) or self.start != self._stored_start

    def take_changes(self) -> Changes | None:
        """Changes since the last call, in their current state; None if nothing needs to be stored."""
        dirty, self._dirty = sorted(self._dirty), []
        batches: list[StateBatch] = []
        position = self.start
        for first, last in dirty:
            first = max(first, position)
            if first <= last:
                position = last + 1
                for run in self.runs.overlapping(first, last):
                    _append_joined(batches, _stored(run, first, last))
        if not batches and self.start == self._stored_start:
            return None
        self._stored_start = self.start
        return Changes(self.start, self.final, tuple(batches))

    def _load(self, stored: Sequence[StateBatch]) -> None:
        for batch in sorted(stored, key=lambda each: each.first):
            first = max(batch.first, self.end)
            if batch.last < first:
                continue
            self.extend(first)
            self.runs.add(Run(first, batch.last, batch.state, batch.count, batch.due_ms))
            self.end = batch.last + 1
            self._count(batch.state, batch.last - first + 1)
        self.changed(self.start, self.end)
        self.advance()

    def _ready_key(self, run: Run) -> int | None:
        return HIGHEST_PRIORITY - run.priority if self.is_ready(run) else None


def _due_key(run: Run) -> int | None:
    timed = run.state is ACQUIRED or (run.state is AVAILABLE and 0 < run.due_ms < PARKED_MS)
    return run.due_ms if timed else None


def _stored(run: Run, first: int, last: int) -> StateBatch:
    """Acquired records are stored as available, with their count: after a crash the delivery still counts."""
    state = AVAILABLE if run.state is ACQUIRED else run.state
    due_ms = run.due_ms if run.state is AVAILABLE and run.due_ms < PARKED_MS else 0
    return StateBatch(max(run.first, first), min(run.last, last), state, run.count, due_ms)


def _append_joined(batches: list[StateBatch], batch: StateBatch) -> None:
    if batches:
        before = batches[-1]
        alike = (before.state, before.count, before.due_ms) == (batch.state, batch.count, batch.due_ms)
        if alike and before.last + 1 == batch.first:
            batches[-1] = msgspec.structs.replace(before, last=batch.last)
            return
    batches.append(batch)
