"""Threads for work that blocks: fsync, deletion, recovery. Results come back on the event loop; a `Mutex` is for the
few values that both touch."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar


def _acquire(lock: Lock) -> None:
    lock.acquire()


class Mutex:
    """A lock for `with`. A thread that finds it taken calls `wait`, which a simulation with its one thread replaces."""

    __slots__ = ("_lock",)

    wait: Callable[[Lock], None] = staticmethod(_acquire)

    def __init__(self) -> None:
        self._lock = Lock()

    def acquire(self) -> None:
        if not self._lock.acquire(blocking=False):
            Mutex.wait(self._lock)

    def release(self) -> None:
        self._lock.release()

    @property
    def is_held(self) -> bool:
        return self._lock.locked()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self._lock.release()


Result = TypeVar("Result")
Job = Callable[[], Any]
Done = Callable[[Any, BaseException | None], None]


class Workers:
    """A fixed number of threads. Finished jobs are reported in batches: one wake-up of the loop serves many."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, name: str) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._wake_pending = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, done: Done) -> None:
        """Run `job` in a thread, then `done(result, error)` on the loop."""
        self._jobs.put((job, done))

    async def run(self, job: Callable[[], Result]) -> Result:
        future: asyncio.Future[Result] = self._loop.create_future()
        self.submit(job, partial(_settle, future))
        try:
            return await future
        finally:
            # An error has this frame, and so the future, which has the error: a circle with all that the job had.
            del future

    def close(self) -> None:
        """Let the threads finish what is queued and end; call it on the loop, which hears of the last results."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._report()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            result, error = None, None
            try:
                result = job()
            except BaseException as failure:  # noqa: BLE001 - handed to the submitter, who knows what it means
                error = failure
            self._finished.append((done, result, error))
            # A thread that waits for its next job would keep all that the last one had: a reply of 100 MB.
            del item, job, done, result, error
            if not self._wake_pending:
                self._wake_pending = True
                try:
                    self._loop.call_soon_threadsafe(self._report)
                except RuntimeError:
                    return

    def _report(self) -> None:
        # Cleared first: a job that finishes from here on either is seen below or wakes the loop again.
        self._wake_pending = False
        while self._finished:
            done, result, error = self._finished.popleft()
            try:
                done(result, error)
            except Exception as failure:  # noqa: BLE001 - the others in line have nothing to do with it
                self._loop.call_exception_handler(
                    {"message": "reporting a finished job failed", "exception": failure}
                )


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
