"""Which run comes next: those that may be delivered, by priority and offset, and those that something is due for."""

import heapq
from collections.abc import Callable, Iterable

from millstream.coordinator.shares.runs import Run, Runs

# Entries that no longer hold are thrown out when they come to the top, or when they are most of what there is.
_STALE_MOST = 1_024


class RunHeap:
    """Runs by a key of theirs. An entry holds while the run that begins there still has that key."""

    __slots__ = ("_entries", "_key", "_runs")

    def __init__(self, runs: Runs, key: Callable[[Run], int | None]) -> None:
        """`key` is None for runs that do not belong here."""
        self._runs = runs
        self._key = key
        self._entries: list[tuple[int, int]] = []

    def note(self, runs: Iterable[Run]) -> None:
        """Enter these runs, which are new or have changed."""
        for run in runs:
            key = self._key(run)
            if key is not None:
                heapq.heappush(self._entries, (key, run.first))
        if len(self._entries) > 2 * len(self._runs) + _STALE_MOST:
            self._entries = [(key, run.first) for run in self._runs if (key := self._key(run)) is not None]
            heapq.heapify(self._entries)

    def first(self) -> tuple[int, Run] | None:
        entries = self._entries
        while entries:
            key, offset = entries[0]
            run = self._runs.starting_at(offset)
            if run is not None and self._key(run) == key:
                return key, run
            heapq.heappop(entries)
        return None
