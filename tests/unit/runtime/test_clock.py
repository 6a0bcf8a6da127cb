from millstream.runtime.clock import CautiousTime, SteadyTime

HOUR_MS = 3_600_000


class JumpingClock:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.jump_ms = 0

    def now_ms(self) -> int:
        return 1_000_000_000 + int(self.seconds * 1000) + self.jump_ms

    def monotonic(self) -> float:
        return self.seconds


def test_steady_time_passes_and_does_not_jump() -> None:
    clock = JumpingClock()
    steady = SteadyTime(clock)
    clock.seconds, clock.jump_ms = 10.0, HOUR_MS
    assert steady.now_ms() == 1_000_010_000


def test_nothing_gets_older_by_a_jump_and_a_clock_that_is_set_back_counts() -> None:
    clock = JumpingClock()
    cautious = CautiousTime(clock)
    clock.seconds, clock.jump_ms = 10.0, HOUR_MS
    assert cautious.now_ms() == 1_000_010_000
    clock.jump_ms = -HOUR_MS
    assert cautious.now_ms() == 1_000_010_000 - HOUR_MS


def test_a_clock_that_most_others_contradict_makes_nothing_older() -> None:
    clock = JumpingClock()
    cautious = CautiousTime(clock)
    right = clock.now_ms() - HOUR_MS
    cautious.heard(2, right)
    cautious.heard(3, right + 5)
    clock.seconds = 10.0
    assert cautious.now_ms() == right + 5 + 10_000
    # One that is far behind holds up nobody.
    clock.jump_ms = -HOUR_MS
    cautious.heard(3, 0)
    assert cautious.now_ms() == right + 10_000
