"""Mutual exclusion between the event loop and the workers' threads, for the few values both touch."""

from collections.abc import Callable
from threading import Lock


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
