"""Finds the next run: to deliver, by priority and offset, or with the next deadline."""

import heapq
from collections.abc import Callable, Iterable

from millstream.coordinator.shares.runs import Run, Runs

# Stale entries are dropped when they reach the top, or when most entries are stale.
_STALE_MOST = 1_024


class RunHeap:
    """Runs by a key. An entry is valid while the run that begins at its offset still has that key."""

    __slots__ = ("_entries", "_key", "_runs")

    def __init__(self, runs: Runs, key: Callable[[Run], int | None]) -> None:
        """`key` returns None for runs that do not belong here."""
        self._runs = runs
        self._key = key
        self._entries: list[tuple[int, int]] = []

    def note(self, runs: Iterable[Run]) -> None:
        """Add these runs, which are new or have changed."""
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
