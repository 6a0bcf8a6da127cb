"""Replies of one connection: each has its place in the order in which they were asked for."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

Reply = list[bytes | memoryview]


class ReplyOrder(Protocol):
    """Who sends replies in the order of their requests."""

    @property
    def closed(self) -> bool: ...

    def send(self, buffers: Reply) -> None:
        """Write a reply now if it is its turn, else when those before it are written."""
        ...

    def expect_reply(self, reply: "PendingReply") -> None:
        """Keep the next place for it."""
        ...

    def completed(self, reply: "PendingReply") -> None:
        """Called by a reply that is ready."""
        ...

    def block(self) -> None:
        """Handle no further request until `unblock` has been called as often."""
        ...

    def unblock(self) -> None: ...

    def refuse(self, reason: str) -> None:
        """Close because of what was sent, with one line in the log."""
        ...

    def close(self) -> None: ...


class PendingReply:
    """A reply that will come: its place in the order of the connection's replies."""

    __slots__ = ("_order", "abandoned", "buffers", "held_bytes", "hurried")

    def __init__(self, order: ReplyOrder) -> None:
        self._order = order
        self.buffers: Reply | None = None
        self.held_bytes = 0
        # Called when the connection is gone before the reply was ready, and when too much waits behind it.
        self.abandoned: Callable[[], object] | None = None
        self.hurried: Callable[[], object] | None = None

    def complete(self, buffers: Reply) -> None:
        if self.buffers is None:
            self.buffers = buffers
            self._order.completed(self)


class Delayed:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.produces = 0
        self.fetches = 0

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, call)

    def next_turn(self, call: Callable[[], None]) -> None:
        """In a turn of its own: whoever asks is in the middle of something."""
        self._loop.call_soon(call)

    def sizes(self) -> Mapping[str, int]:
        return {"produce": self.produces, "fetch": self.fetches}
