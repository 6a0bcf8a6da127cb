"""Many deadlines, most of which are pushed back before they are due."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Postponing a deadline is one dictionary write; the heap is corrected when it is read."""

    __slots__ = ("_due_ms", "_heap", "_queued_ms", "_sequence")

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._queued_ms: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def set(self, key: K, due_ms: int) -> None:
        self._due_ms[key] = due_ms
        queued = self._queued_ms.get(key)
        if queued is None or due_ms < queued:
            self._push(key, due_ms)

    def cancel(self, key: K) -> None:
        self._due_ms.pop(key, None)

    def next(self) -> int | None:
        """The earliest deadline; corrects moved and cancelled entries on the way."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            due_ms = self._due_ms.get(key)
            if due_ms == queued_ms and self._queued_ms.get(key) == queued_ms:
                return due_ms
            heapq.heappop(self._heap)
            if self._queued_ms.get(key) != queued_ms:
                continue
            del self._queued_ms[key]
            if due_ms is not None:
                self._push(key, due_ms)
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return one key whose deadline has passed."""
        due_ms = self.next()
        if due_ms is None or due_ms > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due_ms[key]
        del self._queued_ms[key]
        return key

    def _push(self, key: K, due_ms: int) -> None:
        self._sequence += 1
        self._queued_ms[key] = due_ms
        heapq.heappush(self._heap, (due_ms, self._sequence, key))
