"""The threads of a simulated program: jobs take simulated time, and a crash finds some of them half done."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random

from millstream.runtime.workers import Done, Job, Workers
from millstream.testing.disk import Crashed, SimulatedDisk

# A crash in the middle of a job comes within so many changes of the disk.
_MOST_CHANGES_OF_A_JOB = 6


class SimulatedWorkers(Workers):
    """A job does its work in one moment, after the time that it takes; then its result is reported."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, seconds: Callable[[], float]) -> None:
        self._loop = loop
        self._free = count
        self._seconds = seconds
        self._queued: deque[tuple[Job, Done]] = deque()
        self._running: dict[int, tuple[Job, Done]] = {}
        self._number = 0

    def submit(self, job: Job, done: Done) -> None:
        if self._free:
            self._begin(job, done)
        else:
            self._queued.append((job, done))

    def close(self) -> None:
        """As threads that are joined: what was asked for is done, and reported, before this returns."""
        left = [*self._running.values(), *self._queued]
        self._running.clear()
        self._queued.clear()
        for job, done in left:
            _carry_out(job, done)

    def crash(self, disk: SimulatedDisk, random: Random) -> None:
        """The program ends now: jobs under way get as far as chance has it."""
        jobs = [job for job, _ in self._running.values()]
        self._running.clear()
        self._queued.clear()
        random.shuffle(jobs)
        for job in jobs:
            disk.crash_after(random.randrange(_MOST_CHANGES_OF_A_JOB))
            with suppress(Exception, Crashed):
                job()

    def _begin(self, job: Job, done: Done) -> None:
        self._free -= 1
        self._number += 1
        self._running[self._number] = job, done
        self._loop.call_later(self._seconds(), self._finish, self._number)

    def _finish(self, number: int) -> None:
        work = self._running.pop(number, None)
        if work is None:
            return
        self._free += 1
        if self._queued:
            self._begin(*self._queued.popleft())
        _carry_out(*work)


def _carry_out(job: Job, done: Done) -> None:
    result, error = None, None
    try:
        result = job()
    except Exception as failure:  # noqa: BLE001 - handed to the submitter, who knows what it means
        error = failure
    done(result, error)
