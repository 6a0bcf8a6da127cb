"""Work that is too long for one turn of the event loop: in slices, with a turn for everybody else after each.

Each turn does one slice, however many clients ask for long work, so the turn stays short.
What cannot be sliced (reading a large request, writing a large reply) is done in a thread, one job at a time: a second
thread would only make the loop wait longer for the interpreter.
"""

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# A request larger than this is read in a thread. Elements take two bytes or more.
LARGE_REQUEST_BYTES = 8 * 1024
# Elements of a request or reply that are handled in one turn: some take forty microseconds each.
SLICE_ELEMENTS = 200
# A reply with more elements is written in a thread.
LARGE_REPLY_ELEMENTS = 1000


class _Workers(Protocol):
    async def run(self, job: Callable[[], Result]) -> Result: ...


class LongWork:
    def __init__(self, loop: asyncio.AbstractEventLoop, workers: _Workers) -> None:
        self._loop = loop
        self._workers = workers
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self._apart = asyncio.Lock()
        self.turns = 0
        """Turns that long work has had so far."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def pause(self) -> None:
        """Wait for a turn for long work."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._give_turn)
        await turn
        self.turns += 1

    def _give_turn(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._give_turn)

    async def slices(self, items: list[Item], size: int = SLICE_ELEMENTS) -> AsyncIterator[list[Item]]:
        """The items, each slice in a turn of its own."""
        for start in range(0, len(items), size):
            await self.pause()
            yield items[start : start + size]

    async def apart(self, job: Callable[[], Result]) -> Result:
        """The result of a job in a thread, which touches nothing that the loop changes."""
        async with self._apart:
            # The collector would traverse a hundred thousand new values again and again, and block the loop.
            was_enabled = gc.isenabled()
            gc.disable()
            try:
                return await self._workers.run(job)
            finally:
                if was_enabled:
                    gc.enable()
