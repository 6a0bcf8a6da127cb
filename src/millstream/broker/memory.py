"""A bound on the memory of requests and replies under way, over all connections."""

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Counts bytes; those who find it exhausted wait in line and are called when bytes come back."""

    __slots__ = ("_waiting", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.used_bytes

    def try_take(self, size: int) -> bool:
        """A single request larger than the whole budget is let in when nothing else is under way."""
        if self.used_bytes and self.used_bytes + size > self.limit_bytes:
            return False
        self.used_bytes += size
        return True

    def take(self, size: int) -> None:
        """Count bytes that already exist."""
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        for _ in range(len(self._waiting)):
            if self.free_bytes <= 0:
                return
            self._waiting.popleft()()

    def when_free(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)
