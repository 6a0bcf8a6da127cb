"""The threads of a simulated program: jobs take simulated time, and a crash leaves some of them half done."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from random import Random

from millstream.runtime.workers import Done, Job, Workers
from millstream.testing.disk import Crashed, SimulatedDisk
from millstream.testing.simulator.split_jobs import SplitJob

# A crash in the middle of a job comes within so many changes of the disk.
_MOST_CHANGES_OF_A_JOB = 6


class SimulatedWorkers(Workers):
    """A job runs in one moment, after its duration; then its result is reported.

    With `splits` it stops before each change of the disk, and continues a little later.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        count: int,
        seconds: Callable[[], float],
        *,
        splits: bool = False,
    ) -> None:
        self._splits = splits
        self._split: dict[int, SplitJob] = {}
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
        """As when threads are joined: all submitted jobs are done and reported before this returns."""
        for number, begun in list(self._split.items()):
            begun.hurry()
            self._end(number, begun)
        left = [*self._running.values(), *self._queued]
        self._running.clear()
        self._queued.clear()
        for job, done in left:
            _carry_out(job, done)

    def crash(self, disk: SimulatedDisk, random: Random) -> None:
        """The program ends now: jobs under way stop at random points."""
        self.give_up(disk, random)
        jobs = [job for job, _ in self._running.values()]
        self._running.clear()
        self._queued.clear()
        random.shuffle(jobs)
        for job in jobs:
            disk.crash_after(random.randrange(_MOST_CHANGES_OF_A_JOB))
            with suppress(Exception, Crashed):
                job()

    @property
    def split(self) -> list[SplitJob]:
        """Jobs that have begun and are not over."""
        return list(self._split.values())

    def give_up(self, disk: SimulatedDisk, random: Random) -> None:
        """Jobs partly done get a little further, and are dropped."""
        for number, begun in list(self._split.items()):
            del self._split[number]
            self._running.pop(number, None)
            disk.crash_after(random.randrange(_MOST_CHANGES_OF_A_JOB))
            begun.hurry()

    def _begin(self, job: Job, done: Done) -> None:
        self._free -= 1
        self._number += 1
        self._running[self._number] = job, done
        self._loop.call_later(self._seconds(), self._finish, self._number)

    def _finish(self, number: int) -> None:
        if self._splits and number in self._running:
            self._split[number] = SplitJob(self._running[number][0], copy_context())
            self._go_on(number)
            return
        work = self._running.pop(number, None)
        if work is None:
            return
        self._start_next()
        _carry_out(*work)

    def _start_next(self) -> None:
        self._free += 1
        if self._queued:
            self._begin(*self._queued.popleft())

    def _go_on(self, number: int) -> None:
        begun = self._split.get(number)
        if begun is None:
            return
        if not begun.is_over and not begun.go_on():
            self._loop.call_later(self._seconds(), self._go_on, number)
            return
        self._start_next()
        self._end(number, begun)

    def _end(self, number: int, begun: SplitJob) -> None:
        del self._split[number]
        _, done = self._running.pop(number)
        if begun.error is not None and not isinstance(begun.error, Exception):
            raise begun.error
        done(begun.result, begun.error)


def _carry_out(job: Job, done: Done) -> None:
    result, error = None, None
    try:
        result = job()
    except Exception as failure:  # noqa: BLE001 - handed to the submitter, who knows what it means
        error = failure
    done(result, error)
