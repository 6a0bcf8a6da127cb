"""One client's requests to one other node, on a connection of their own: order and back pressure are as if the client
had connected itself.

The greeting says who the client is; after it the other node forwards nothing from this connection, so a request takes
one hop. Requests that are sent before the connection is made wait for it.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from millstream.protocol.api import PEER_APIS, PEER_CLIENT, Api
from millstream.protocol.stream import BrokenStream, RequestStream

if TYPE_CHECKING:
    from millstream.broker.server.memory import MemoryWaiter
    from millstream.broker.server.server import Server

_CONNECT_SECONDS = 2.0
_FINISH_SECONDS = 30.0
# Detects within about ten seconds a node that disappeared without closing the connection.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))

Buffers = Sequence[bytes | memoryview]


class LaneLost(Exception):
    """There will be no reply. `was_sent`: whether the request may have been handled nevertheless."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


# Gets the reply without its correlation id, in a buffer of its own.
Done = Callable[[memoryview | LaneLost], None]


class Lane(Protocol):
    @property
    def closed(self) -> bool: ...

    def send(
        self, api: Api, version: int, client_id: str | None, body: Buffers, seconds: float | None, done: Done
    ) -> None:
        """`done` is called once, later; a lane on which nothing arrives for `seconds` is given up."""
        ...

    def close(self, *, tell: bool = True) -> None:
        """With `tell`, waiting requests get `LaneLost`."""
        ...

    def finish(self, on_finished: Callable[[], None]) -> None:
        """Send nothing more. Close when sent requests are handled, or after a time limit, and call `on_finished`."""
        ...


class Registered(NamedTuple):
    """A node's address and registration epoch; a new epoch means a new process."""

    host: str
    port: int
    epoch: int


class RemoteLane(asyncio.BufferedProtocol):
    def __init__(self, server: "Server", node_id: int, to: Registered, greeting: bytes) -> None:
        self.node_id = node_id
        self.to = to
        self.closed = False
        self._server = server
        self._loop = server.loop
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes | memoryview] = []
        # The client's own limit bounds what is in flight.
        self._stream: RequestStream[Done] = RequestStream(most_in_flight=sys.maxsize)
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._partial = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._memory: MemoryWaiter | None = None
        self._taken_bytes = 0
        self._on_finished: Callable[[], None] | None = None
        self._finishing: asyncio.TimerHandle | None = None
        self.send(PEER_APIS[PEER_CLIENT], 0, None, (greeting,), _CONNECT_SECONDS * 2, lambda _: None)
        self._connecting = self._loop.create_task(self._connect(), name=f"lane to node {node_id}")

    async def _connect(self) -> None:
        host, port, _ = self.to
        if not port:
            self.close()
            return
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._loop.create_connection(lambda: self, host.strip("[]"), port)
        except (OSError, TimeoutError):
            self.close()

    def send(
        self, api: Api, version: int, client_id: str | None, body: Buffers, seconds: float | None, done: Done
    ) -> None:
        if self.closed:
            lost = LaneLost(f"there is no connection to node {self.node_id}", was_sent=False)
            self._loop.call_soon(done, lost)
            return
        deadline = None if seconds is None else self._loop.time() + seconds
        head = self._stream.head(
            api.key,
            version,
            sum(map(len, body)),
            done,
            client_id=None if client_id is None else client_id.encode(),
            flexible=api.is_flexible(version),
            deadline=deadline,
        )
        if self._deadline_timer is None and deadline is not None:
            self._deadline_timer = self._loop.call_at(deadline, self._check_deadline)
        if self._transport is None:
            self._unsent += (head, *body)
        else:
            self._transport.writelines((head, *body))

    def close(self, *, tell: bool = True) -> None:
        if self.closed:
            return
        self.closed = True
        was_sent = self._transport is not None
        self._connecting.cancel()
        self._unsent.clear()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        if self._memory is not None:
            self._server.reply_memory.cancel(self._memory)
        taken, self._taken_bytes, self._frame = self._taken_bytes, 0, None
        self._server.reply_memory.give_back(taken)
        if self._transport is not None:
            self._transport.abort()
        waiting = self._stream.give_up()
        if tell:
            lost = LaneLost(f"the connection to node {self.node_id} was lost", was_sent=was_sent)
            for done in waiting:
                self._loop.call_soon(done, lost)
        if self._on_finished is not None and self._finishing is not None:
            self._finishing.cancel()
            self._on_finished()

    def finish(self, on_finished: Callable[[], None]) -> None:
        if self.closed:
            on_finished()
            return
        self._on_finished = on_finished
        self._finishing = self._loop.call_later(_FINISH_SECONDS, self.close)
        self._close_if_finished()

    def _close_if_finished(self) -> None:
        if self._on_finished is not None and not self._stream.in_flight:
            self.close()

    def _check_deadline(self) -> None:
        """Only the first waiting request counts: later ones are answered after it."""
        self._deadline_timer = None
        deadline = self._stream.deadline()
        if deadline is None:
            # No request waits, or the first one has no time limit.
            if self._stream.in_flight:
                self._deadline_timer = self._loop.call_later(1.0, self._check_deadline)
        elif deadline <= self._loop.time():
            self.close()
        else:
            self._deadline_timer = self._loop.call_at(deadline, self._check_deadline)

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self._transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE:
                if hasattr(socket, name):
                    raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        unsent, self._unsent = self._unsent, []
        self._transport.writelines(unsent)

    def connection_lost(self, _error: Exception | None) -> None:
        self.close()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        scratch, kept = self._server.scratch, len(self._partial)
        scratch[:kept] = self._partial
        return scratch[kept:]

    def buffer_updated(self, size: int) -> None:
        if self._frame is None:
            kept, self._partial = len(self._partial), b""
            self._cut(self._server.scratch[: kept + size])
            return
        self._filled += size
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            taken, self._taken_bytes = self._taken_bytes, 0
            self._hand_out(memoryview(frame))
            self._server.reply_memory.give_back(taken)

    def _cut(self, data: memoryview) -> None:
        at, end = 0, len(data)
        while end - at >= 4 and not self.closed:
            try:
                size = self._stream.reply_size(data, at)
            except BrokenStream:
                self.close()
                return
            if end - at - 4 < size:
                if 4 + size > len(self._server.scratch):
                    self._begin_frame(size, bytes(data[at + 4 :]))
                    return
                break
            # The read buffer is reused at once.
            self._hand_out(memoryview(bytes(data[at + 4 : at + 4 + size])))
            at += 4 + size
        self._partial = bytes(data[at:])

    def _begin_frame(self, size: int, head: bytes) -> None:
        """A large reply is read once there is memory for all of it, so that no half-read reply waits for memory."""
        if self._server.reply_memory.try_take(size):
            self._read_into_frame(size, head)
            return
        assert self._transport is not None
        self._transport.pause_reading()
        self._memory = self._server.reply_memory.when_free(size, lambda: self._granted(size, head))

    def _granted(self, size: int, head: bytes) -> None:
        self._memory = None
        self._read_into_frame(size, head)
        assert self._transport is not None
        self._transport.resume_reading()

    def _read_into_frame(self, size: int, head: bytes) -> None:
        self._taken_bytes = size
        self._frame = bytearray(size)
        self._filled = len(head)
        self._frame[: len(head)] = head

    def _hand_out(self, reply: memoryview) -> None:
        try:
            done, body = self._stream.received(reply)
        except BrokenStream:
            self.close()
            return
        if done is not None:
            done(body)
        self._close_if_finished()
