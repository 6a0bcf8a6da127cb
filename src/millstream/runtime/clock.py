"""Time, as the node sees it."""

import time
from typing import Protocol

# CLOCK_MONOTONIC, used where Linux's CLOCK_BOOTTIME is missing, may stop while the machine is suspended.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for durations and deadlines."""
        ...

    def elapsed(self) -> float:
        """As `monotonic`, but continues while the machine is suspended, like the clocks of other machines."""
        ...


class SteadyTime:
    """Milliseconds since the epoch that never jump: a stepped wall clock must not end all sessions."""

    __slots__ = ("_clock", "_start_ms", "_start_seconds")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ms = clock.now_ms()
        self._start_seconds = clock.monotonic()

    def now_ms(self) -> int:
        return self._start_ms + int((self._clock.monotonic() - self._start_seconds) * 1000)


class CautiousTime:
    """A time that is not ahead of the real one, for deletions, which cannot be undone.

    It is the earliest of three: the wall clock, which may be set back; the steady time since the start, which does not
    follow a clock that jumps ahead; and the median of all nodes' clocks, which outvotes one that started ahead.
    """

    __slots__ = ("_clock", "_others", "_steady")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steady = SteadyTime(clock)
        self._others: dict[int, int] = {}
        """By node: its clock's time minus the steady time here."""

    def heard(self, who: int, now_ms: int) -> None:
        self._others[who] = now_ms - self._steady.now_ms()

    def wall_ms(self) -> int:
        return self._clock.now_ms()

    def now_ms(self) -> int:
        wall, steady = self._clock.now_ms(), self._steady.now_ms()
        estimates = sorted([wall, *(steady + offset for offset in self._others.values())])
        return min(wall, steady, estimates[(len(estimates) - 1) // 2])


class SystemClock:
    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def elapsed(self) -> float:
        return time.clock_gettime(_ELAPSED)
