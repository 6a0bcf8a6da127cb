"""One client's forwarded requests to this very node: handled in this process, answered like those of another."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.broker.routing.lane import Buffers, Done, LaneLost
from millstream.broker.server.connection import Connection, PendingReply, Reply
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Histogram
from millstream.protocol.api import Api
from millstream.protocol.errors import KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker

log = get_logger("millstream.proxy")

# The client's request is timed as a whole.
_UNTIMED = Histogram()


class PartReply(PendingReply):
    """A reply that no client waits for in its place: whoever asked gets it when it is there."""

    __slots__ = ("_done",)

    def __init__(self, connection: Connection, done: Callable[[Reply], None]) -> None:
        super().__init__(connection)
        self._done = done

    def complete(self, buffers: Reply) -> None:
        if self.buffers is None:
            self.buffers = buffers
            self._done(buffers)


class PartContext(RequestContext):
    """A client's request, or a part of it, whose reply is passed on without a frame around it."""

    place: PartReply

    def reply(self, body: Reply) -> None:
        self.place.complete(body)

    def reply_later(self) -> LaterReply:
        return LaterReply(self, self.place)

    def framed(self, body: Reply) -> Reply:
        return body


class _LaneConnection:
    """The client's connection as handlers of this lane's requests see it: what they block, this lane is too."""

    def __init__(self, connection: Connection, unblocked: Callable[[], None]) -> None:
        self._connection = connection
        self._unblocked = unblocked
        self.blocks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def block(self) -> None:
        self.blocks += 1
        self._connection.block()

    def unblock(self) -> None:
        self.blocks -= 1
        self._connection.unblock()
        if not self.blocks:
            self._unblocked()


class LocalLane:
    """Requests are handled one after the other, as those of a connection are: one that its handler holds up holds up
    those behind it.
    """

    def __init__(self, broker: "Broker", connection: Connection, seen: "Broker | None" = None) -> None:
        """`seen` is this node as handlers are to see it, where that is not as it is."""
        self.closed = False
        self._broker = broker
        self._seen = seen
        self._connection = _LaneConnection(connection, self._go_on)
        # In their order, so that a simulated run can be repeated.
        self._waiting: dict[PartReply, Done] = {}
        self._line: deque[tuple[PartContext, bytearray]] = deque()

    def send(
        self, api: Api, version: int, client_id: str | None, body: Buffers, _seconds: float | None, done: Done
    ) -> None:
        head = b"\0" if api.is_flexible(version) else b""

        def finished(buffers: Reply) -> None:
            if self._waiting.pop(place, None) is not None:
                # Not at once: whoever sends is in the middle of its own work.
                reply = memoryview(b"".join((head, *buffers)))
                self._broker.loop.call_soon(done, reply)

        connection = cast(Connection, self._connection)
        place = PartReply(connection, finished)
        self._waiting[place] = done
        clock = self._broker.clock.monotonic
        context = PartContext(api, version, 0, client_id, connection, clock(), _UNTIMED, clock, place)
        # A leader stamps what it is given.
        self._line.append((context, bytearray().join(body)))
        self._go_on()

    def _go_on(self) -> None:
        while self._line and not self._connection.blocks:
            context, request = self._line.popleft()
            self._serve(context, memoryview(request))

    def _serve(self, context: PartContext, request: memoryview) -> None:
        try:
            self._broker.dispatcher.serve_here(context, request, 0, self._seen)
        except KafkaError as error:
            self._connection.refuse(error.message)
        except Exception:
            # There will be no reply: without this the client would wait for it for ever.
            log.exception("request failed", peer=context.peer, api=context.api.name)
            self._connection.close()

    def close(self, *, tell: bool = True) -> None:
        if self.closed:
            return
        self.closed = True
        self._line.clear()
        waiting, self._waiting = self._waiting, {}
        for place, done in waiting.items():
            if place.abandoned is not None:
                place.abandoned()
            if tell:
                self._broker.loop.call_soon(done, LaneLost("the lane was closed", was_sent=True))
