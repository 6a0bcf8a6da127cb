"""One connection to another node for calls of doors: many are under way, and answers come in any order."""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, TypeVar

from millstream.broker.routing.calls import Cancel, NodeCall, decode_answer, encode_call
from millstream.doors.caller import NODE, Caller
from millstream.protocol.api import NODE_CALL, PEER_CLIENT
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.peer_client import Greeting, encode_greeting

A = TypeVar("A")

# Size, API key, version, correlation id, and a client id of null.
_HEAD = Struct(">ihhih")
_REPLY_HEAD = Struct(">ii")
_MOST_REPLY_BYTES = 256 << 20
_MOST_UNSENT_BYTES = 16 << 20
_MOST_CALLS = 10_000
_CONNECT_SECONDS = 2.0
# Beyond what a call itself may wait at the other end.
_GRACE_SECONDS = 5.0

Late = Callable[[Any], None]


class CallLink:
    def __init__(self, address: str, greeting: Callable[[], Greeting]) -> None:
        """`greeting` says who calls, when the connection is made."""
        self.address = address
        self._greeting = greeting
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._waiting: dict[int, tuple[NodeCall[Any], asyncio.Future[Any], Late | None]] = {}
        self._correlation = 0
        self._last_heard = 0.0
        self._closed = False

    async def call(
        self, caller: Caller, call: NodeCall[A], wait_s: float = 0.0, late: Callable[[A], None] | None = None
    ) -> A:
        """The answer, which may take `wait_s` at the other end; KafkaError when it was refused.

        NotDone when it was not sent, REQUEST_TIMED_OUT when nobody knows what became of it. If whoever waits gives up,
        the other end is told; `late` gets an answer that comes all the same.
        """
        body = encode_call(caller, call)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                writer = await self._ready()
        except (OSError, TimeoutError, UnicodeError):
            raise self._not_reached() from None
        began = loop.time()
        correlation = self._send(writer, NODE_CALL, body)
        answer: asyncio.Future[A] = loop.create_future()
        self._waiting[correlation] = call, answer, late
        try:
            async with asyncio.timeout(wait_s + _GRACE_SECONDS):
                return await asyncio.shield(answer)
        except TimeoutError:
            self._give_up(correlation)
            if self._last_heard < began:
                # Nothing has come since: the connection may be dead, and nobody told us.
                self._lost(writer)
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the node at {self.address} did not answer in time"
            ) from None
        except asyncio.CancelledError:
            self._give_up(correlation)
            raise

    def close(self) -> None:
        self._closed = True
        if self._writer is not None:
            self._lost(self._writer)

    async def _ready(self) -> asyncio.StreamWriter:
        if self._closed or len(self._waiting) >= _MOST_CALLS:
            raise self._not_reached()
        if self._writer is None:
            async with self._connecting:
                if self._writer is None:
                    await self._connect()
        writer = self._writer
        if writer is None or self._closed:
            raise self._not_reached()
        if writer.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
            await writer.drain()
        if self._writer is not writer or writer.transport.is_closing():
            raise self._not_reached()
        return writer

    async def _connect(self) -> None:
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        self._writer = writer
        self._send(writer, PEER_CLIENT, encode_greeting(self._greeting()))
        self._reading = asyncio.get_running_loop().create_task(
            self._read(reader, writer), name=f"answers of {self.address}"
        )

    def _send(self, writer: asyncio.StreamWriter, key: int, body: bytes) -> int:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        writer.write(_HEAD.pack(_HEAD.size - 4 + len(body), key, 0, self._correlation, -1) + body)
        return self._correlation

    def _give_up(self, correlation: int) -> None:
        waiting = self._waiting.get(correlation)
        if waiting is None:
            return
        _, answer, late = waiting
        if answer.done() and not answer.cancelled() and answer.exception() is None and late is not None:
            # It came in the same turn.
            late(answer.result())
        if answer.done() or late is None:
            del self._waiting[correlation]
        if self._writer is not None and not self._writer.transport.is_closing():
            self._send(self._writer, NODE_CALL, encode_call(NODE, Cancel(correlation)))
        answer.cancel()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                size, correlation = _REPLY_HEAD.unpack(await reader.readexactly(_REPLY_HEAD.size))
                if not 4 <= size <= _MOST_REPLY_BYTES:
                    return
                body = await reader.readexactly(size - 4)
                self._last_heard = loop.time()
                self._answered(correlation, body)
        except (OSError, EOFError):
            return
        finally:
            self._lost(writer)

    def _answered(self, correlation: int, body: bytes) -> None:
        waiting = self._waiting.pop(correlation, None)
        if waiting is None:
            # The greeting's, or one that was given up.
            return
        call, answer, late = waiting
        try:
            value = decode_answer(call, body)
        except KafkaError as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if not answer.done():
            answer.set_result(value)
        elif late is not None:
            late(value)

    def _lost(self, writer: asyncio.StreamWriter) -> None:
        if self._writer is not writer:
            return
        self._writer = None
        writer.transport.abort()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
        waiting, self._waiting = self._waiting, {}
        for _, answer, _ in waiting.values():
            if not answer.done():
                answer.set_exception(
                    KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the connection to {self.address} was lost")
                )
                # Whoever gave up in the same turn does not look at it.
                answer.exception()

    def _not_reached(self) -> NotDone:
        return NotDone(ErrorCode.BROKER_NOT_AVAILABLE, f"the node at {self.address} cannot be reached")
