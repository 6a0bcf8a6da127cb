"""One client's connection: cuts the byte stream into requests, and knows who sends them.

Bytes are read into a buffer shared by all connections; requests that are whole in it are handled right there. Only a
request that continues beyond it gets a buffer of its own, so an idle connection holds no memory. `Intake` hands
requests to their handlers in turn. A handler that cannot answer at once keeps a place for its reply; later requests are
handled meanwhile, and `ReplyQueue` sends the replies in the order of the requests.
"""

import asyncio
import enum
import socket
from functools import partial
from typing import TYPE_CHECKING, cast

from millstream.broker.server.frame_memory import Address, IncomingFrame
from millstream.broker.server.intake import Intake, Pause
from millstream.broker.server.listener import Listener, Relay
from millstream.broker.server.replies import ReplyQueue
from millstream.doors.caller import Caller
from millstream.protocol.api import APIS, OWN_APIS, PEER_APIS, SHARE_ACKNOWLEDGE
from millstream.protocol.limits import LIMITS, explain_size
from millstream.protocol.wire import I16, I32, MalformedRequest
from millstream.runtime.read_threshold import ReadThreshold

if TYPE_CHECKING:
    from millstream.broker.server.server import Server

# The header: API key, version, correlation id and the length of the client id.
MIN_REQUEST_BYTES = 10
# Replies larger than this count against the node's memory until the client has read them.
WRITE_HIGH_WATER_BYTES = 1 << 16
_ALL_APIS = {**APIS, **PEER_APIS, **OWN_APIS}
# The address of a connection that is not made yet.
NOWHERE = Address()


class Life(enum.Enum):
    OPEN = "requests are taken"
    ENDING = "those taken before are answered, then it is closed"
    CLOSED = "nothing is taken or sent any more"


# Looked up for every request.
_CLOSED = Life.CLOSED


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: "Server", listener: Listener) -> None:
        self._server = server
        self.listener = listener
        self.relay: Relay | None = None
        self._is_for_this_node = False
        self._transport: asyncio.Transport | None = None
        self._partial = b""
        self._frame: IncomingFrame | None = None
        self._has_sent_whole = False
        self._threshold = ReadThreshold(None)
        self.address = NOWHERE
        self._life = Life.OPEN
        dispatcher = server.dispatcher
        self._intake = Intake(partial(dispatcher.dispatch, self), dispatcher.clock, server.loop, server.turn)
        self.replies = ReplyQueue(server.loop, server.reply_memory, server.metrics.bytes_out, self._intake)
        self.peer = ""
        self.client = ""
        """Address of the client whose requests come: the peer, or the client for which the peer forwards."""
        self._caller: Caller | None = None
        self._client_id = b""
        self._last_read = 0.0

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but not the base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        address = transport.get_extra_info("peername")
        self.peer = self.client = f"{address[0]}:{address[1]}" if address else "unknown"
        if self.raw_socket is not None:
            self.raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._threshold = ReadThreshold(self.raw_socket)
        self._last_read = self._server.loop.time()
        self._intake.begin(transport)
        self.replies.begin(transport)
        self.find_relay()
        self._server.connected(self)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.closed and (self._frame is not None or self._partial):
            self._server.ended(self, "the client left in the middle of a request")
        self._end()
        if self.relay is not None:
            self.relay.close()
        if self._frame is not None:
            frame, self._frame = self._frame, None
            self._server.frames.end(frame)
        self._server.disconnected(self)
        self.replies.abandon()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._intake.pause(Pause.UNREAD)

    def resume_writing(self) -> None:
        self._intake.pauses.discard(Pause.UNREAD)
        self.replies.all_was_read()
        self._intake.handle_waiting()

    def get_buffer(self, _sizehint: int) -> memoryview:
        frame = self._frame
        if frame is not None:
            return memoryview(frame.buffer)[frame.filled : frame.size]
        scratch = self._server.scratch
        kept = len(self._partial)
        if kept:
            scratch[:kept] = self._partial
            return scratch[kept:]
        return scratch

    def buffer_updated(self, size: int) -> None:
        self._last_read = self._server.loop.time()
        frame = self._frame
        if frame is None:
            kept = len(self._partial)
            self._partial = b""
            self._cut(self._server.scratch[: kept + size])
            return
        frame.filled += size
        if frame.filled == frame.size:
            self._threshold.expect(0)
            self._frame = None
            self._has_sent_whole = True
            view = memoryview(frame.buffer)[: frame.size]
            self._intake.handle(view)
            view.release()
            self._server.frames.end(frame)
        elif frame.missing or self._server.frames.grow(frame):
            self._threshold.expect(frame.missing)
        else:
            self._intake.pause(Pause.MEMORY)

    # -- requests

    def _cut(self, data: memoryview) -> None:
        """Handle every whole request in `data`; keep or make room for the rest."""
        at, end = 0, len(data)
        server, handle = self._server, self._intake.handle
        largest = server.max_request_bytes
        until = 0.0
        while end - at >= 4:
            size: int = I32.unpack_from(data, at)[0]
            if size < MIN_REQUEST_BYTES or size > largest:
                self.refuse(_explain_size(size, largest))
                return
            stop = at + 4 + size
            if stop > end:
                if end - at < 4 + MIN_REQUEST_BYTES:
                    # Too short to see which API is requested.
                    break
                self._partial = b""
                self._begin_frame(size, data[at + 4 :])
                return
            if stop < end and I16.unpack_from(data, at + 4)[0] == SHARE_ACKNOWLEDGE:
                at += (4 + size) * self._handle_series(data[at:], size)
            else:
                handle(data[at + 4 : stop])
                at = stop
            if at == end or self._life is _CLOSED:
                return
            if not until:
                until = server.turn.until()
            if server.dispatcher.clock() > until:
                until = float("inf")
                self._intake.let_others_go_first()
        self._partial = bytes(data[at:])

    def _begin_frame(self, size: int, head: memoryview) -> None:
        """Go on reading one large request into a buffer of its own, once there is memory for it."""
        server = self._server
        api = _ALL_APIS.get(I16.unpack_from(head)[0])
        if api is not None and size > LIMITS[api.name].size_bytes:
            self.refuse(explain_size(api.name, size))
            return
        frame = IncomingFrame(
            size,
            head,
            self.address,
            self._frame_granted,
            self._frame_stalled,
            is_proven=self._has_sent_whole,
            is_of_node=self.listener.trusts_nodes,
        )
        if server.frames.begin(frame):
            self._frame = frame
            self._threshold.expect(frame.missing)
            return
        # Copied: other connections use the shared buffer meanwhile.
        frame.head = memoryview(bytes(head))
        self._frame = frame
        self._intake.pause(Pause.MEMORY)

    def _frame_granted(self) -> None:
        if self._frame is not None:
            self._threshold.expect(self._frame.missing)
        self._intake.resume(Pause.MEMORY)

    def _frame_stalled(self) -> None:
        self._server.ended(self, "a request stopped half-way, and others wait for its memory")
        self.abort()

    def _handle_series(self, data: memoryview, size: int) -> int:
        """Handle the next requests of this size together, or else the first alone; returns how many."""
        if self._intake.handles_at_once:
            taken = self._server.dispatcher.dispatch_series(self, SHARE_ACKNOWLEDGE, data, size)
            if taken:
                return taken
        self._intake.handle(data[4 : 4 + size])
        return 1

    def caller(self, client_id: bytes | memoryview) -> Caller:
        """The sender of a request with this client id; mostly the same as for the request before."""
        caller = self._caller
        if caller is None or self._client_id != client_id:
            try:
                name = str(client_id, "utf-8")
            except UnicodeDecodeError:
                raise MalformedRequest("the client id is not UTF-8") from None
            self._client_id = bytes(client_id)
            host = self.client.rpartition(":")[0]
            caller = self._caller = Caller(client_id=name, host=host, listener=self.listener.name)
        return caller

    def speak_for(self, client: str | None) -> None:
        """From now on answer from this node alone, for that client, or for the peer itself where `client` is None."""
        if client is not None:
            self.client = client
            self._caller = None
        self._is_for_this_node = True
        if self.relay is not None:
            self.relay.close()
            self.relay = None

    def find_relay(self) -> None:
        """Make a relay where this node answers for other nodes, unless the caller wants this node's own answers."""
        new_relay = self.listener.new_relay
        if self.relay is None and new_relay is not None and not (self._is_for_this_node or self.closed):
            self.relay = new_relay(self)

    def block(self) -> None:
        """Handle no further request of this connection until `unblock` has been called as often."""
        self._intake.block()

    def unblock(self) -> None:
        self._intake.unblock()

    # -- the end

    @property
    def closed(self) -> bool:
        return self._life is _CLOSED

    def stop_reading(self) -> None:
        """Take no further request; replies still go out."""
        self._intake.pause(Pause.STOPPED)

    def close_when_answered(self) -> None:
        """Take no further request, and close when those before are answered."""
        if not self.closed:
            self._life = Life.ENDING
            self.stop_reading()
            if self.replies:
                self.replies.drained = self.close
            else:
                self.close()

    def refuse(self, reason: str) -> None:
        """Close because of what the client sent, with one line in the log."""
        if not self.closed:
            self._server.refused(self, reason)
            self.close()

    def close(self) -> None:
        if not self.closed:
            self._end()
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        self._end()
        if self._transport is not None:
            self._transport.abort()

    @property
    def local_host(self) -> str:
        """This node's address as the client reached it."""
        address = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(address[0]) if address else "127.0.0.1"

    @property
    def trusts_nodes(self) -> bool:
        return self.listener.trusts_nodes

    @property
    def raw_socket(self) -> socket.socket | None:
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def last_active(self) -> float:
        return max(self._last_read, self.replies.last_sent)

    @property
    def has_unsent(self) -> bool:
        return Pause.UNREAD in self._intake.pauses

    @property
    def is_waiting(self) -> bool:
        """A request of this connection is being worked on, or waits for memory to be read into."""
        return not self.closed and (bool(self.replies) or self._intake.is_busy)

    def _end(self) -> None:
        self._life = Life.CLOSED
        self._intake.end()
        self.replies.end()


def _explain_size(size: int, largest: int) -> str:
    head = I32.pack(size)
    if head in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC"):
        return "an HTTP request on the port for Kafka clients; the HTTP port is another one"
    if head[:2] == b"\x16\x03":
        return (
            "a TLS handshake on a port that speaks plain text; set security.protocol=PLAINTEXT in the client"
        )
    return f"a request of {size} bytes; between {MIN_REQUEST_BYTES} and {largest} are taken (socket.request.max.bytes)"
