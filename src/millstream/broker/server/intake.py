"""The queue of one connection's requests: each is handled in its turn, unless there is a reason to wait."""

import asyncio
import enum
from collections import deque
from collections.abc import Callable

# Requests that arrive together are handled for this long, then other connections have a turn. When all connections with
# several requests have had so much of a turn of the loop, each handles one at a time.
LONGEST_TURN_SECONDS = 0.01
_LONGEST_TURN_OF_ALL_SECONDS = 0.05


class Pause(enum.IntEnum):
    """Why no further request is handled, or read, for now."""

    WORK = 1
    """A request is being worked on; later requests may rely on its effect."""
    STOPPED = 2
    """The node stops, or the connection ends."""
    UNREAD = 3
    """The client does not read its replies."""
    HELD_BYTES = 4
    """Too many bytes of replies wait behind one that is not ready."""
    HELD_REPLIES = 5
    """Too many replies wait behind one that is not ready."""
    MEMORY = 6
    """A request that is being read waits for memory; requests read before it are handled."""


_MEMORY_ONLY = {Pause.MEMORY}


class SharedTurn:
    """The turn of the loop that a node's connections share; it begins with the first that has several requests."""

    __slots__ = ("_clock", "_end", "_loop")

    def __init__(self, clock: Callable[[], float], loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._end: float | None = None

    def until(self) -> float:
        """How long a connection that begins now may go on with its further requests."""
        now = self._clock()
        if self._end is None:
            self._end = now + _LONGEST_TURN_OF_ALL_SECONDS
            self._loop.call_soon(self._next)
        return min(now + LONGEST_TURN_SECONDS, self._end)

    def _next(self) -> None:
        self._end = None


class Intake:
    """While there is a reason to pause, nothing is read from the socket, and requests that were read wait in line."""

    __slots__ = (
        "_clock", "_dispatch", "_line", "_loop", "_transport", "_turn", "_works", "is_reading", "pauses"
    )  # fmt: skip

    def __init__(
        self,
        dispatch: Callable[[memoryview], None],
        clock: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
        turn: SharedTurn,
    ) -> None:
        self._turn = turn
        self._dispatch: Callable[[memoryview], None] | None = dispatch
        """None when nothing is handled any more."""
        self._clock = clock
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._line: deque[bytes] = deque()
        self._works = 0
        """Calls of `block` without their `unblock`."""
        self.pauses: set[Pause] = set()
        self.is_reading = True

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        """Handle nothing more."""
        self._transport = self._dispatch = None
        self._line.clear()

    @property
    def handles_at_once(self) -> bool:
        return self.is_reading and not self._line

    def handle(self, request: memoryview) -> None:
        if not self.is_reading or self._line:
            self._line.append(bytes(request))
        elif self._dispatch is not None:
            self._dispatch(request)

    def handle_waiting(self) -> None:
        until = self._turn.until() if self._line else 0.0
        while self._line and self._dispatch is not None and self._may_handle:
            self._dispatch(memoryview(bytearray(self._line.popleft())))
            if self._line and self._clock() > until:
                self.let_others_go_first()
        self._update()

    def let_others_go_first(self) -> None:
        """Handle the rest of this client's requests after other connections have had a turn."""
        self.block()
        self._loop.call_soon(self.unblock)

    def block(self) -> None:
        """Handle no further request until `unblock` has been called as often."""
        self._works += 1
        self.pause(Pause.WORK)

    def unblock(self) -> None:
        self._works -= 1
        if not self._works:
            self.pauses.discard(Pause.WORK)
        self.handle_waiting()

    def pause(self, reason: Pause) -> None:
        self.pauses.add(reason)
        self._update()

    def resume(self, reason: Pause) -> None:
        self.pauses.discard(reason)
        self._update()

    @property
    def is_busy(self) -> bool:
        """A request is being worked on, or waits for memory to be read into."""
        return Pause.WORK in self.pauses or Pause.MEMORY in self.pauses

    @property
    def _may_handle(self) -> bool:
        """Whether another request that was read is handled now."""
        return not self.pauses or self.pauses == _MEMORY_ONLY

    def _update(self) -> None:
        is_reading = not self._line and not self.pauses
        if is_reading == self.is_reading or self._transport is None:
            return
        self.is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
