"""One client's forwarded requests to this node itself: handled in this process, answered as if by another node."""

import asyncio
from collections import deque
from collections.abc import Callable

from millstream.broker.api.call import Call
from millstream.broker.api.dispatch import Dispatcher
from millstream.broker.routing.lane import Buffers, Done, LaneLost
from millstream.broker.server.connection import Connection
from millstream.broker.server.listener import Relay
from millstream.broker.server.replies import PendingReply, Reply
from millstream.observability.logs import get_logger
from millstream.protocol.api import Api
from millstream.protocol.errors import KafkaError

log = get_logger("millstream.proxy")


class LocalCall(Call):
    """A client's request, or a part of it, whose reply is passed on without a frame."""

    def finished(self, body: Reply) -> Reply:
        return body


class _Place:
    """Passes one request's reply to the caller as soon as it is ready, whatever other replies are pending.

    To its handler it is the client's connection; blocking it blocks the lane too.
    """

    def __init__(self, lane: "LocalLane", connection: Connection, done: Callable[[Reply], None]) -> None:
        self._lane = lane
        self._connection = connection
        self._done = done
        self.pending: PendingReply | None = None

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def local_host(self) -> str:
        return self._connection.local_host

    @property
    def relay(self) -> Relay | None:
        return self._connection.relay

    @property
    def trusts_nodes(self) -> bool:
        return self._connection.trusts_nodes

    def speak_for(self, client: str | None) -> None:
        self._connection.speak_for(client)

    @property
    def replies(self) -> "_Place":
        return self

    def send(self, buffers: Reply) -> None:
        self._done(buffers)

    def expect(self, reply: PendingReply) -> None:
        self.pending = reply

    def completed(self, reply: PendingReply) -> None:
        self.pending = None
        self._done(reply.buffers or [])

    def block(self) -> None:
        self._lane.blocks += 1
        self._connection.block()

    def unblock(self) -> None:
        self._lane.blocks -= 1
        self._connection.unblock()
        self._lane.go_on()

    def refuse(self, reason: str) -> None:
        self._connection.refuse(reason)

    def close(self) -> None:
        self._connection.close()


class LocalLane:
    """Handles requests one after the other, as a connection does: a handler that blocks delays later requests."""

    def __init__(
        self, dispatcher: Dispatcher, connection: Connection, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.closed = False
        self.blocks = 0
        self._dispatcher = dispatcher
        self._connection = connection
        self._loop = loop
        # Kept in order, so that a simulated run can be repeated.
        self._waiting: dict[_Place, Done] = {}
        self._line: deque[tuple[LocalCall, bytearray]] = deque()
        self._on_finished: Callable[[], None] | None = None

    def send(
        self, api: Api, version: int, client_id: str | None, body: Buffers, _seconds: float | None, done: Done
    ) -> None:
        head = b"\0" if api.is_flexible(version) else b""

        def finished(buffers: Reply) -> None:
            if self._waiting.pop(place, None) is not None:
                # Not at once: the sender is in the middle of its own work.
                self._loop.call_soon(done, memoryview(b"".join((head, *buffers))))

        place = _Place(self, self._connection, finished)
        self._waiting[place] = done
        caller = self._connection.caller((client_id or "").encode())
        served = self._dispatcher.served(api.key)
        call = LocalCall(caller, version, 0, served, place, self._dispatcher.clock())
        # Copied: the leader stamps the batches.
        self._line.append((call, bytearray().join(body)))
        self.go_on()

    def go_on(self) -> None:
        while self._line and not self.blocks:
            call, request = self._line.popleft()
            self._serve(call, memoryview(request))
        if self._on_finished is not None and not self._line:
            on_finished, self._on_finished = self._on_finished, None
            self.close(tell=False)
            on_finished()

    def finish(self, on_finished: Callable[[], None]) -> None:
        self._on_finished = on_finished
        self.go_on()

    def _serve(self, call: LocalCall, request: memoryview) -> None:
        try:
            self._dispatcher.serve(call, request, 0)
        except KafkaError as error:
            self._connection.refuse(error.message)
        except Exception:
            # There will be no reply; without this the client would wait forever.
            log.exception("request failed", peer=self._connection.peer, api=call.api.name)
            self._connection.close()

    def close(self, *, tell: bool = True) -> None:
        if self.closed:
            return
        self.closed = True
        self._line.clear()
        waiting, self._waiting = self._waiting, {}
        for place, done in waiting.items():
            if place.pending is not None and place.pending.abandoned is not None:
                place.pending.abandoned()
            if tell:
                self._loop.call_soon(done, LaneLost("the lane was closed", was_sent=True))
