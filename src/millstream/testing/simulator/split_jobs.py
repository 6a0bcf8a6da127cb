"""Jobs that run in pieces: between two changes of the disk the event loop and other jobs may run.

Each has its own thread, but only one thread runs at a time, and control is handed over explicitly. So the simulation
decides the order, and a run can be repeated. A thread takes the next job when its job is over, because starting one
costs ten times as much as a hand-over.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from threading import Lock, Thread, local

from millstream.runtime.workers import Job, Mutex

_here = local()


class _Thread:
    """`go` lets its job run to the next stop; `back` says that it stopped or is over."""

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
    """No job is under way any more, and no thread is left."""
    while _idle:
        _idle.pop().end()


class SplitJob:
    """`go_on` lets it run to its next stop; it has a `result` or an `error` when `is_over`."""

    def __init__(self, job: Job, context: Context) -> None:
        self.is_over = False
        self.result: object = None
        self.error: BaseException | None = None
        self._job = job
        self._context = context
        self._is_hurried = False
        self._thread: _Thread | None = None

    def go_on(self) -> bool:
        """Returns whether the job is over."""
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
        """Run to the end without further stops."""
        self._is_hurried = True
        while not self.is_over:
            self.go_on()

    def stop(self) -> None:
        """Called in its thread: let others run first."""
        assert self._thread is not None
        self._thread.back.release()
        self._thread.go.acquire()

    def run(self) -> None:
        """The whole job, in its thread."""
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
    """Called before a job or the event loop changes a disk; the event loop never stops half-way."""
    job: SplitJob | None = getattr(_here, "job", None)
    if job is not None and job.may_stop:
        job.stop()


@contextmanager
def taking_turns(under_way: Callable[[], list[SplitJob]]) -> Iterator[None]:
    """A thread that waits for a mutex lets those run that may hold it. `under_way`: the jobs of the running program."""
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
