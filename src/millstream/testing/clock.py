"""Time that passes only when the test says so."""


class ManualClock:
    """A `runtime.clock.Clock` under the test's control."""

    __slots__ = ("_now_ms", "_started_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = self._started_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return (self._now_ms - self._started_ms) / 1000

    def elapsed(self) -> float:
        return self.monotonic()

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
