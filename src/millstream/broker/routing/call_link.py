"""One connection to another node for calls of doors: many calls at once, answered in any order."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from millstream.broker.routing.calls import Cancel, NodeCall, decode_answer, encode_call
from millstream.doors.caller import NODE, Caller
from millstream.protocol.api import NODE_CALL, PEER_CLIENT
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.peer_client import Greeting, encode_greeting
from millstream.protocol.stream import BrokenStream, RequestStream, TooManyInFlight

A = TypeVar("A")

_MOST_REPLY_BYTES = 256 << 20
_MOST_UNSENT_BYTES = 16 << 20
_MOST_CALLS = 10_000
_CONNECT_SECONDS = 2.0
# Added to the time that a call may wait at the other end.
_GRACE_SECONDS = 5.0


class _Waiting(msgspec.Struct, eq=False):
    call: NodeCall[Any]
    answer: "asyncio.Future[Any]"
    late: Callable[[Any], None] | None

    def received(self, body: memoryview) -> None:
        try:
            value = decode_answer(self.call, body)
        except KafkaError as error:
            if not self.answer.done():
                self.answer.set_exception(error)
            return
        if not self.answer.done():
            self.answer.set_result(value)
        elif self.late is not None:
            self.late(value)

    def lost(self, address: str) -> None:
        if not self.answer.done():
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the connection to {address} was lost")
            self.answer.set_exception(error)
            # The caller may have given up in the same turn.
            self.answer.exception()


class _Open:
    """A connection while it lasts."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.stream: RequestStream[_Waiting] = RequestStream(
            most_in_flight=_MOST_CALLS, most_reply_bytes=_MOST_REPLY_BYTES, in_order=False
        )
        self.last_heard = 0.0
        self.reading: asyncio.Task[None] | None = None

    @property
    def is_usable(self) -> bool:
        return not self.writer.transport.is_closing()

    def tell(self, key: int, body: bytes) -> None:
        """Send a request that gets no answer."""
        self.writer.write(self.stream.head_without_reply(key, 0, len(body)) + body)


class CallLink:
    """Connects with the first call, and again after the connection was lost."""

    def __init__(self, address: str, greeting: Callable[[], Greeting]) -> None:
        """`greeting` says who calls, when the connection is made."""
        self.address = address
        self._greeting = greeting
        self._open: _Open | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def call(
        self, caller: Caller, call: NodeCall[A], wait_s: float = 0.0, late: Callable[[A], None] | None = None
    ) -> A:
        """The answer, which may take `wait_s` at the other end; KafkaError when the call was refused.

        NotDone when it was not sent, REQUEST_TIMED_OUT when it is unknown whether it was carried out. If the caller
        gives up, the call is cancelled at the other end; an answer that arrives anyway goes to `late`.
        """
        body = encode_call(caller, call)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(call, loop.create_future(), late)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                connection = await self._ready()
            connection.writer.write(connection.stream.head(NODE_CALL, 0, len(body), waiting) + body)
        except (OSError, TimeoutError, UnicodeError, TooManyInFlight):
            raise self._not_reached() from None
        correlation, began = connection.stream.correlation, loop.time()
        try:
            async with asyncio.timeout(wait_s + _GRACE_SECONDS):
                answer: A = await asyncio.shield(waiting.answer)
                return answer
        except TimeoutError:
            self._give_up(connection, correlation, waiting)
            if connection.last_heard < began:
                # Nothing was received since: the connection may be dead without having been closed.
                self._lost(connection)
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the node at {self.address} did not answer in time"
            ) from None
        except asyncio.CancelledError:
            self._give_up(connection, correlation, waiting)
            raise

    def close(self) -> None:
        self._closed = True
        if self._open is not None:
            self._lost(self._open)

    async def _ready(self) -> _Open:
        async with self._connecting:
            if self._open is None and not self._closed:
                await self._connect()
        connection = self._open
        if (
            connection is not None
            and connection.writer.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES
        ):
            await connection.writer.drain()
        if connection is None or self._open is not connection or not connection.is_usable:
            raise self._not_reached()
        return connection

    async def _connect(self) -> None:
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        if self._closed:
            writer.transport.abort()
            return
        connection = self._open = _Open(writer)
        connection.tell(PEER_CLIENT, encode_greeting(self._greeting()))
        connection.reading = asyncio.get_running_loop().create_task(
            self._read(reader, connection), name=f"answers of {self.address}"
        )

    async def _read(self, reader: asyncio.StreamReader, connection: _Open) -> None:
        loop, stream = asyncio.get_running_loop(), connection.stream
        try:
            while True:
                size = stream.reply_size(await reader.readexactly(4))
                waiting, body = stream.received(memoryview(await reader.readexactly(size)))
                connection.last_heard = loop.time()
                if waiting is not None:
                    waiting.received(body)
        except (OSError, EOFError, BrokenStream):
            return
        finally:
            self._lost(connection)

    def _give_up(self, connection: _Open, correlation: int, waiting: _Waiting) -> None:
        answer = waiting.answer
        if answer.done():
            # The answer arrived in the same turn of the loop.
            if not answer.cancelled() and answer.exception() is None and waiting.late is not None:
                waiting.late(answer.result())
            return
        answer.cancel()
        if waiting.late is None:
            connection.stream.forget(correlation)
        if connection.is_usable:
            connection.tell(NODE_CALL, encode_call(NODE, Cancel(correlation)))

    def _lost(self, connection: _Open) -> None:
        if self._open is connection:
            self._open = None
        connection.writer.transport.abort()
        if connection.reading is not None and connection.reading is not asyncio.current_task():
            connection.reading.cancel()
        for waiting in connection.stream.give_up():
            waiting.lost(self.address)

    def _not_reached(self) -> NotDone:
        return NotDone(ErrorCode.BROKER_NOT_AVAILABLE, f"the node at {self.address} cannot be reached")
