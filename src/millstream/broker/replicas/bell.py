"""How one task is woken by anybody who rings."""

import asyncio


class Bell:
    """Heard by the one task that waits for it; rung before, it is heard at once.

    One future, where tasks and `asyncio.wait` would cost several times as much, with every request.
    """

    __slots__ = ("_is_rung", "_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_rung = False
        self._waiter: asyncio.Future[bool] | None = None

    def ring(self) -> None:
        self._is_rung = True
        if self._waiter is not None:
            _resolve(self._waiter, True)

    def silence(self) -> None:
        self._is_rung = False

    async def hear(self, seconds: float | None = None) -> bool:
        """Whether it was rung within that time."""
        if self._is_rung:
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
