"""Waiting for what happens in its own time: ask again until it has, with a deadline instead of a sleep."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T], wanted: Callable[[T], bool], what: str, seconds: float = 90.0) -> T:
    """The first thing seen that is as wanted; fails with the last one seen."""
    deadline, pause = time.monotonic() + seconds, 0.01
    while True:
        seen = look()
        if wanted(seen):
            return seen
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s, last seen {seen!r}"
        time.sleep(pause)
        # Who looks often takes the time from what he waits for.
        pause = min(pause * 1.4, 0.25)
