"""Jobs that are done in pieces: between two changes of the disk the event loop and other jobs may come first.

Each runs in a thread of its own, but never at the same time as anything else: who goes on is handed over. So the order
is the simulation's, and a run can be repeated. A thread whose job is over does the next one: to start one costs ten
times as much as to hand over.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from threading import Lock, Thread, local

from millstream.runtime.workers import Job, Mutex

_here = local()


class _Thread:
    """`go` lets its job run to the next stop, and `back` says that it stopped or is over."""

    __slots__ = ("_thread", "back", "go", "job")

    def __init__(self) -> None:
        self.job: SplitJob | None = None
        self.go, self.back = Lock(), Lock()
        self.go.acquire()
        self.back.acquire()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Only without a job."""
        self.go.release()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            if self.job is None:
                return
            self.job.run()
            self.job = None
            self.back.release()


_idle: list[_Thread] = []


def end_threads() -> None:
    """No job is under way any more, and no thread is left behind."""
    while _idle:
        _idle.pop().end()


class SplitJob:
    """`go_on` lets it run to its next stop; it has its `result` or its `error` when `is_over`."""

    def __init__(self, job: Job, context: Context) -> None:
        self.is_over = False
        self.result: object = None
        self.error: BaseException | None = None
        self._job = job
        self._context = context
        self._is_hurried = False
        self._thread: _Thread | None = None

    def go_on(self) -> bool:
        """Whether it is over now."""
        thread = self._thread
        if thread is None:
            thread = self._thread = _idle.pop() if _idle else _Thread()
            thread.job = self
        thread.go.release()
        thread.back.acquire()
        if self.is_over:
            _idle.append(thread)
        return self.is_over

    def hurry(self) -> None:
        """To its end, with no more stops."""
        self._is_hurried = True
        while not self.is_over:
            self.go_on()

    def stop(self) -> None:
        """Called in its thread: others first."""
        assert self._thread is not None
        self._thread.back.release()
        self._thread.go.acquire()

    def run(self) -> None:
        """All of it, in its thread."""
        _here.job = self
        try:
            self.result = self._context.run(self._job)
        except BaseException as error:  # noqa: BLE001 - handed to the submitter; a crash ends the thread only
            self.error = error
        _here.job = None
        self.is_over = True

    @property
    def may_stop(self) -> bool:
        return not self._is_hurried


def before_change() -> None:
    """A disk is about to be changed, by a job or by the event loop, which never stops half-way."""
    job: SplitJob | None = getattr(_here, "job", None)
    if job is not None and job.may_stop:
        job.stop()


@contextmanager
def taking_turns(under_way: Callable[[], list[SplitJob]]) -> Iterator[None]:
    """Whoever waits for a mutex lets those go on that may hold it. `under_way`: of the program that runs now."""
    original = Mutex.wait

    def wait(lock: Lock) -> None:
        waiting: SplitJob | None = getattr(_here, "job", None)
        while not lock.acquire(blocking=False):
            if waiting is not None and waiting.may_stop:
                waiting.stop()
                continue
            for job in under_way():
                if job is not waiting and not job.is_over:
                    job.go_on()

    Mutex.wait = staticmethod(wait)
    try:
        yield
    finally:
        Mutex.wait = original
