"""Virtual time: events in a fixed order, all chance from one seed."""

import heapq
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from random import Random


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        """Milliseconds."""
        self.steps = 0
        self.tail: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._digest = sha256()

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_ms, next(self._order), action))

    def run_until(self, time_ms: float, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Whether it was enough before the time was over."""
        while self._events and self._events[0][0] <= time_ms:
            self.now, _, action = heapq.heappop(self._events)
            action()
            self.steps += 1
            if is_enough():
                return True
        self.now = time_ms
        return False

    def note(self, line: str) -> None:
        """One line of the trace; two runs of a seed must agree in every one."""
        text = f"{self.now:10.3f} {line}"
        self._digest.update(text.encode())
        self.tail.append(text)
        if len(self.tail) > 400:
            del self.tail[:200]

    @property
    def trace(self) -> str:
        return self._digest.hexdigest()
