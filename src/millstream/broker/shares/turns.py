"""Limits the work of all queues of a node in one turn of the event loop, however many there are."""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

# Records and headers; a record takes up to ten microseconds.
_MOST_IN_A_TURN = 2_000


Result = TypeVar("Result")


class Apart(Protocol):
    async def __call__(self, job: Callable[[], Result]) -> Result: ...


class Turns:
    def __init__(self, call_soon: Callable[[Callable[[], None]], object], apart: Apart) -> None:
        """`apart` runs a job in a thread, one at a time."""
        self.apart = apart
        self._call_soon = call_soon
        self._left = _MOST_IN_A_TURN
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    @property
    def is_over(self) -> bool:
        """Whether the work of this turn is used up."""
        return self._left <= 0

    def use(self, elements: int) -> None:
        self._left -= elements
        self._schedule()

    def call_next(self, callback: Callable[[], None]) -> None:
        """Call it in the next turn that is not over, in the order of these calls."""
        self._waiting.append(callback)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self._left = _MOST_IN_A_TURN
        waiting, self._waiting = self._waiting, deque()
        try:
            while waiting and not self.is_over:
                waiting.popleft()()
        finally:
            if waiting:
                self._waiting.extendleft(reversed(waiting))
                self._schedule()
