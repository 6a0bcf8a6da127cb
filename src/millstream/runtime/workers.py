"""Threads for blocking work: fsync, deletion, recovery. Results are delivered on the event loop; a `Mutex` protects the
few values that both use."""

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
    """A lock for `with`. If it is taken, a thread calls `wait`, which a single-threaded simulation replaces."""

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
            # The error refers to this frame, and the future to the error: break this cycle, which keeps the job's data.
            del future

    def close(self) -> None:
        """Let the threads finish the queue and end; call it on the loop, which gets the last results."""
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
            except BaseException as failure:  # noqa: BLE001 - passed to the submitter
                error = failure
            self._finished.append((done, result, error))
            # A thread waiting for its next job must not keep the last one's data, such as a reply of 100 MB.
            del item, job, done, result, error
            if not self._wake_pending:
                self._wake_pending = True
                try:
                    self._loop.call_soon_threadsafe(self._report)
                except RuntimeError:
                    return

    def _report(self) -> None:
        # Cleared first: a job that finishes from now on is either seen below or wakes the loop again.
        self._wake_pending = False
        while self._finished:
            done, result, error = self._finished.popleft()
            try:
                done(result, error)
            except Exception as failure:  # noqa: BLE001 - other results must still be delivered
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
