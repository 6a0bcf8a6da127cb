"""How one task waits until anybody wakes it."""

import asyncio


class WakeUp:
    """For the one task that waits; one that was called before does not let it wait.

    One future, where tasks and `asyncio.wait` would cost several times as much, with every request.
    """

    __slots__ = ("_is_woken", "_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_woken = False
        self._waiter: asyncio.Future[bool] | None = None

    def wake(self) -> None:
        self._is_woken = True
        if self._waiter is not None:
            _resolve(self._waiter, True)

    def clear(self) -> None:
        self._is_woken = False

    async def wait(self, seconds: float | None = None) -> bool:
        """Whether it was woken within that time."""
        if self._is_woken:
            return True
        waiter = self._waiter = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, _resolve, waiter, False)
        try:
            return await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


def _resolve(waiter: "asyncio.Future[bool]", answer: bool) -> None:
    if not waiter.done():
        waiter.set_result(answer)
