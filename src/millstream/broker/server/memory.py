"""A bound on the memory of requests and replies under way, over all connections."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class MemoryWaiter:
    """A place in the line for memory."""

    __slots__ = ("granted", "size_bytes")

    def __init__(self, size_bytes: int, granted: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.granted: Callable[[], None] | None = granted


class MemoryBudget:
    """Counts bytes. When they are used up, requests for more wait in line, in order."""

    __slots__ = ("_waiting", "freed", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[MemoryWaiter] = deque()
        self.freed: Callable[[], None] | None = None
        """Called when bytes were given back, after the waiters in line were served."""

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.used_bytes

    def _fits(self, size: int) -> bool:
        """A single request larger than the whole budget fits when nothing else is under way."""
        return self.used_bytes == 0 or self.used_bytes + size <= self.limit_bytes

    def try_take(self, size: int) -> bool:
        if self._waiting or not self._fits(size):
            return False
        self.used_bytes += size
        return True

    def take(self, size: int) -> None:
        """Count bytes that already exist."""
        self.used_bytes += size

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """As `take`; the bytes are given back at the end of the block."""
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        if self._waiting:
            self._serve()
        if self.freed is not None:
            self.freed()

    def _serve(self) -> None:
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if first.granted is None:
                waiting.popleft()
            elif self._fits(max(first.size_bytes, 1)):
                waiting.popleft()
                self.used_bytes += first.size_bytes
                first.granted()
            else:
                return

    def when_free(self, size: int, granted: Callable[[], None]) -> MemoryWaiter:
        """Take `size` bytes as soon as they are free, then call. With size 0: call as soon as any memory is free."""
        waiter = MemoryWaiter(size, granted)
        self._waiting.append(waiter)
        return waiter

    def cancel(self, waiter: MemoryWaiter) -> None:
        """Give up a place in the line; waiters behind it may go ahead."""
        waiter.granted = None
        self.give_back(0)
