"""A connection to another node for fetching: requests out, whole replies in, in their order."""

import asyncio
from collections.abc import Callable
from typing import cast

from millstream.protocol.stream import BrokenStream, RequestStream
from millstream.runtime.read_threshold import ReadThreshold

_FIRST_BYTES = 1 << 16
# A buffer larger than any requested reply is not kept, nor any large one after so many small replies.
_MOST_KEPT_BYTES = 32 << 20
_SMALL_REPLIES = 8
_CONNECT_SECONDS = 2.0


Receiver = Callable[[memoryview | None], object]
"""Called with the reply's body, after its correlation id, or with None when the connection ends before."""


class ReplicaLink(asyncio.BufferedProtocol):
    """Replies are read directly into the buffer in which they are passed on."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._threshold = ReadThreshold(None)
        self._buffer = bytearray(_FIRST_BYTES)
        self._spare: bytearray | None = None
        self._small_replies = 0
        self._filled = 0
        self._stream: RequestStream[Receiver] = RequestStream()
        self.closed = False

    @classmethod
    async def connect(cls, host: str, port: int) -> "ReplicaLink":
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, link = await loop.create_connection(cls, host.strip("[]"), port)
        return link

    def post(
        self, api_key: int, version: int, body: bytes, receiver: Receiver, *, flexible: bool = False
    ) -> None:
        """ConnectionError when the connection is closed already."""
        if self.closed or self._transport is None:
            raise ConnectionError("the connection is closed")
        self._transport.write(
            self._stream.head(api_key, version, len(body), receiver, flexible=flexible) + body
        )

    def send(
        self, api_key: int, version: int, body: bytes, *, flexible: bool = False
    ) -> "asyncio.Future[memoryview]":
        """The reply's body; ConnectionError when the connection ends before."""
        reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        # The waiting task may have ended: then nobody needs the error.
        reply.add_done_callback(lambda future: future.cancelled() or future.exception())

        def received(found: memoryview | None) -> None:
            if reply.done():
                return
            if found is None:
                reply.set_exception(ConnectionError("the connection was lost"))
            else:
                reply.set_result(found)

        try:
            self.post(api_key, version, body, received, flexible=flexible)
        except ConnectionError as error:
            reply.set_exception(error)
        return reply

    def give_back(self, reply: memoryview) -> None:
        """Reuse the buffer of a reply that was handled: new memory for each costs too much."""
        frame = reply.obj
        self._small_replies = self._small_replies + 1 if len(reply) <= _FIRST_BYTES else 0
        if not isinstance(frame, bytearray) or len(frame) > _MOST_KEPT_BYTES:
            return
        if len(frame) > _FIRST_BYTES and self._small_replies >= _SMALL_REPLIES:
            return
        if self._filled == 0 and len(frame) > len(self._buffer):
            frame, self._buffer = self._buffer, frame
        if self._spare is None or len(self._spare) < len(frame):
            self._spare = frame

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._threshold = ReadThreshold(transport.get_extra_info("socket"))

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed = True
        self._fail()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, _sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self._filled += size
        try:
            self._cut()
        except BrokenStream:
            self.close()

    def _cut(self) -> None:
        while self._filled >= 4:
            length = self._stream.reply_size(self._buffer)
            if self._filled < 4 + length:
                self._make_room(4 + length)
                self._threshold.expect(4 + length - self._filled)
                return
            frame, end = self._buffer, 4 + length
            # The receiver owns this buffer now: the rest moves to another one.
            rest = memoryview(frame)[end : self._filled]
            self._buffer = self._another(len(rest))
            self._buffer[: len(rest)] = rest
            self._filled = len(rest)
            receiver, body = self._stream.received(memoryview(frame)[4:end])
            if receiver is not None:
                receiver(body)
        self._threshold.expect(0)
        if self._filled == len(self._buffer):
            self._make_room(2 * self._filled)

    def _another(self, size: int) -> bytearray:
        spare = self._spare
        if spare is not None and len(spare) >= size:
            self._spare = None
            return spare
        # In powers of two, so that a little larger one next time still fits; untouched memory costs nothing.
        return bytearray(max(_FIRST_BYTES, 1 << max(size - 1, 0).bit_length()))

    def _make_room(self, size: int) -> None:
        if size > len(self._buffer):
            grown = self._another(size)
            grown[: self._filled] = memoryview(self._buffer)[: self._filled]
            self._buffer = grown

    def _fail(self) -> None:
        for receiver in self._stream.give_up():
            receiver(None)


class WakeUp:
    """Wakes the one task that waits; if it is called first, the task does not wait.

    It is one future: tasks and `asyncio.wait` would cost several times as much with every request.
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
