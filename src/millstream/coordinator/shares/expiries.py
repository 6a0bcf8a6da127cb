"""When messages expire."""

import heapq
from collections.abc import Callable, Iterator

# How many more entries of settled messages than of unsettled ones may be kept.
_STALE_MOST = 1_024


class Expiries:
    __slots__ = ("_due", "_is_settled")

    def __init__(self, is_settled: Callable[[int], bool]) -> None:
        self._due: list[tuple[int, int]] = []
        self._is_settled = is_settled

    def __len__(self) -> int:
        return len(self._due)

    @property
    def next_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def add(self, expires_ms: int, offset: int) -> None:
        heapq.heappush(self._due, (expires_ms, offset))

    def clear(self) -> None:
        self._due.clear()

    def forget_settled(self, unsettled: int) -> None:
        """Drop entries of settled messages if they are many more than the `unsettled` ones."""
        if len(self._due) > 2 * unsettled + _STALE_MOST:
            self._due = [each for each in self._due if not self._is_settled(each[1])]
            heapq.heapify(self._due)

    def pop_due(self, now_ms: int) -> Iterator[int]:
        while self._due and self._due[0][0] <= now_ms:
            yield heapq.heappop(self._due)[1]
