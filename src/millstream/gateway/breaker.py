"""A circuit breaker: after several failures in a row a broker gets no requests for a while, then a single trial.

closed     --failures in a row-->  open
open       --pause is over------>  half-open   one request passes
half-open  --it succeeds-------->  closed
half-open  --it fails----------->  open
"""

import enum
from collections.abc import Callable


class BreakerState(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """`changed(old, new)` is called at each change. Time comes from the caller, in seconds."""

    __slots__ = ("_failures", "_limit", "_on_change", "_open_until", "_pause_s", "_trying", "state")

    def __init__(
        self, failures: int, pause_s: float, changed: Callable[[BreakerState, BreakerState], None]
    ) -> None:
        self.state = BreakerState.CLOSED
        self._limit = failures
        self._pause_s = pause_s
        self._on_change = changed
        self._failures = 0
        self._open_until = 0.0
        self._trying = False

    def allows(self, now: float) -> bool:
        """Whether a request may go to the broker now. If so, the caller must report the outcome."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN:
            if now < self._open_until:
                return False
            self._become(BreakerState.HALF_OPEN)
            self._trying = True
            return True
        if self._trying:
            return False
        self._trying = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._trying = False
        self._become(BreakerState.CLOSED)

    def failed(self, now: float) -> None:
        self._failures += 1
        self._trying = False
        if self.state is BreakerState.HALF_OPEN or self._failures >= self._limit:
            self._open_until = now + self._pause_s
            self._become(BreakerState.OPEN)

    def abandoned(self) -> None:
        """An allowed request ended without an outcome, for example because the client left."""
        self._trying = False

    def _become(self, state: BreakerState) -> None:
        old, self.state = self.state, state
        if old is not state:
            self._on_change(old, state)
