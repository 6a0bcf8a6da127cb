"""How one task is woken: by anybody who rings, or by the reply that it waits for."""

import asyncio
from typing import Any


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

    async def hear(
        self, seconds: float | None = None, *, or_reply: "asyncio.Future[Any] | None" = None
    ) -> bool:
        """Whether it was rung, or the reply came, within that time."""
        if self._is_rung or (or_reply is not None and or_reply.done()):
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter

        def replied(_reply: object) -> None:
            _resolve(waiter, True)

        if or_reply is not None:
            or_reply.add_done_callback(replied)
        timer = None if seconds is None else self._loop.call_later(seconds, _resolve, waiter, False)
        try:
            return await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
            if or_reply is not None:
                or_reply.remove_done_callback(replied)


def _resolve(waiter: "asyncio.Future[bool]", answer: bool) -> None:
    if not waiter.done():
        waiter.set_result(answer)
