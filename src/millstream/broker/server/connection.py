"""One client's connection: cuts the byte stream into requests and writes the replies in their order.

Bytes are read into a buffer shared by all connections; requests that are whole in it are handled right there. Only a
request that continues beyond it gets a buffer of its own, so an idle connection holds no memory. A handler that cannot
answer at once returns a `PendingReply`; later requests are handled meanwhile, their replies wait for their turn.
"""

import asyncio
import enum
import socket
from collections import deque
from typing import TYPE_CHECKING, cast

from millstream.broker.server.frame_memory import Address, IncomingFrame
from millstream.broker.server.listener import Listener
from millstream.broker.server.replies import PendingReply, Reply
from millstream.doors.caller import Caller
from millstream.protocol.api import APIS, OWN_APIS, PEER_APIS
from millstream.protocol.limits import LIMITS, explain_size
from millstream.protocol.wire import I16, I32, MalformedRequest
from millstream.runtime.read_threshold import ReadThreshold

if TYPE_CHECKING:
    from millstream.broker.server.relay import Relay
    from millstream.broker.server.server import Server

# The header: API key, version, correlation id and the length of the client id.
MIN_REQUEST_BYTES = 10
# Replies larger than this count against the node's memory until the client has read them.
WRITE_HIGH_WATER_BYTES = 1 << 16
# A client that has more replies, or more bytes of them, waiting behind one that is not ready is made to wait.
MAX_PENDING_REPLIES = 1000
MAX_HELD_BYTES = 1 << 20
# Requests of one client that come together are handled for this long, then others have a turn.
_LONGEST_TURN_SECONDS = 0.01
# Small replies that are ready together are one write, up to this.
_WRITTEN_TOGETHER_BYTES = 64 << 10
_ALL_APIS = {**APIS, **PEER_APIS, **OWN_APIS}
# Of a connection that is not made yet.
NOWHERE = Address()


class Life(enum.Enum):
    OPEN = "requests are taken"
    ENDING = "those taken before are answered, then it is closed"
    CLOSED = "nothing is taken or sent any more"


class Pause(enum.IntEnum):
    """Why no further request is handled for now, or none is read."""

    WORK = 1
    """A request is being worked on; those behind it may rely on its effect."""
    STOPPED = 2
    """The node stops, or the connection ends."""
    UNREAD = 3
    """The client does not take its replies."""
    HELD_BYTES = 4
    """Too many bytes of replies wait behind one that is not ready."""
    HELD_REPLIES = 5
    """Too many replies wait behind one that is not ready."""
    MEMORY = 6
    """A request that is being read waits for memory; those read before are handled."""


_MEMORY_ONLY = {Pause.MEMORY}
# Looked up for every request.
_CLOSED, _UNREAD = Life.CLOSED, Pause.UNREAD


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
        self._held_bytes = 0
        self._sends_soon = False
        """At the end of this turn: those ready by then leave in one write."""
        self._replies: deque[PendingReply] = deque()
        self._queued: deque[bytes] = deque()
        self._life = Life.OPEN
        self._pauses: set[Pause] = set()
        self._works = 0
        """How many have blocked it."""
        self._is_reading = True
        self._unsent_bytes = 0
        self.peer = ""
        self.client = ""
        """Whose requests come: the peer's, or where that forwards them, its client's address."""
        self._caller: Caller | None = None
        self._client_id = b""
        self.last_active = 0.0

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
        self.last_active = self._server.loop.time()
        self.find_relay()
        self._server.connected(self)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.closed and (self._frame is not None or self._partial):
            self._server.ended(self, "the client left in the middle of a request")
        self._life = Life.CLOSED
        if self.relay is not None:
            self.relay.close()
        self._release_frame()
        owed, self._unsent_bytes, self._held_bytes = self._unsent_bytes + self._held_bytes, 0, 0
        replies, self._replies = self._replies, deque()
        self._queued.clear()
        self._server.disconnected(self)
        for reply in replies:
            if reply.buffers is None and reply.abandoned is not None:
                reply.abandoned()
        self._server.reply_memory.give_back(owed)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._pause(Pause.UNREAD)

    def resume_writing(self) -> None:
        self._pauses.discard(Pause.UNREAD)
        self.last_active = self._server.loop.time()
        owed, self._unsent_bytes = self._unsent_bytes, 0
        if owed:
            self._server.reply_memory.give_back(owed)
        self._send_ready()
        self._handle_queued()

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
        self.last_active = self._server.loop.time()
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
            self._handle(view)
            view.release()
            self._server.frames.end(frame)
        elif frame.missing or self._server.frames.grow(frame):
            self._threshold.expect(frame.missing)
        else:
            self._pause(Pause.MEMORY)

    # -- requests

    def _cut(self, data: memoryview) -> None:
        """Handle every whole request in `data`; keep or make room for the rest."""
        at, end = 0, len(data)
        largest = self._server.max_request_bytes
        clock = self._server.dispatcher.clock
        began = clock()
        while end - at >= 4:
            size: int = I32.unpack_from(data, at)[0]
            if size < MIN_REQUEST_BYTES or size > largest:
                self.refuse(_explain_size(size, largest))
                return
            if end - at - 4 < size:
                if end - at < 4 + MIN_REQUEST_BYTES:
                    # Not enough to see what it asks for.
                    break
                self._partial = b""
                self._begin_frame(size, data[at + 4 :])
                return
            self._handle(data[at + 4 : at + 4 + size])
            if self._life is _CLOSED:
                return
            at += 4 + size
            if at < end and clock() - began > _LONGEST_TURN_SECONDS:
                began = float("inf")
                self._others_first()
        self._partial = bytes(data[at:])

    def _others_first(self) -> None:
        """What this client has sent takes long: the rest is handled when the others have had a turn."""
        self.block()
        self._server.loop.call_soon(self.unblock)

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
        # The shared buffer is used by others meanwhile.
        frame.head = memoryview(bytes(head))
        self._frame = frame
        self._pause(Pause.MEMORY)

    def _frame_granted(self) -> None:
        if self._frame is not None:
            self._threshold.expect(self._frame.missing)
        self._pauses.discard(Pause.MEMORY)
        self._update_reading()

    def _frame_stalled(self) -> None:
        self._server.ended(self, "a request stopped half-way, and others wait for its memory")
        self.abort()

    def _handle(self, request: memoryview) -> None:
        if not self._is_reading or self._queued:
            self._queued.append(bytes(request))
            return
        self._server.dispatcher.dispatch(self, request)

    def _handle_queued(self) -> None:
        clock = self._server.dispatcher.clock
        began = clock()
        while self._queued and not self.closed and self._may_handle:
            self._server.dispatcher.dispatch(self, memoryview(bytearray(self._queued.popleft())))
            if self._queued and clock() - began > _LONGEST_TURN_SECONDS:
                self._others_first()
        self._update_reading()

    def caller(self, client_id: bytes | memoryview) -> Caller:
        """Who sends a request that says this client id; mostly the same as the one before."""
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
        """Whoever is at the other end wants what this node has itself, for that client or for itself."""
        if client is not None:
            self.client = client
            self._caller = None
        self._is_for_this_node = True
        if self.relay is not None:
            self.relay.close()
            self.relay = None

    def find_relay(self) -> None:
        """Ask whether this node answers here for others; who wants what it has itself stays without."""
        new_relay = self.listener.new_relay
        if self.relay is None and new_relay is not None and not (self._is_for_this_node or self.closed):
            self.relay = new_relay(self)

    def block(self) -> None:
        """Handle no further request of this connection until `unblock` has been called as often."""
        self._works += 1
        self._pause(Pause.WORK)

    def stop_reading(self) -> None:
        """Take no further request; replies still go out."""
        self._pause(Pause.STOPPED)

    def close_when_answered(self) -> None:
        """Take no further request, and close when those before are answered."""
        if not self.closed:
            self._life = Life.ENDING
            self.stop_reading()
            if not self._replies:
                self.close()

    def unblock(self) -> None:
        self._works -= 1
        if not self._works:
            self._pauses.discard(Pause.WORK)
        if not self.closed:
            self._handle_queued()

    @property
    def closed(self) -> bool:
        return self._life is Life.CLOSED

    @property
    def _may_handle(self) -> bool:
        """Whether another request that was read is handled now."""
        return not self._pauses or self._pauses == _MEMORY_ONLY

    def _pause(self, reason: Pause) -> None:
        self._pauses.add(reason)
        self._update_reading()

    def _update_reading(self) -> None:
        is_reading = not self._queued and not self._pauses
        if is_reading == self._is_reading or self._transport is None or self.closed:
            return
        self._is_reading = is_reading
        if is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # -- replies

    def send(self, buffers: Reply) -> None:
        """Write a reply now if it is its turn, else when those before it are written."""
        if self._replies or _UNREAD in self._pauses:
            reply = PendingReply(self)
            self.expect_reply(reply)
            reply.complete(buffers)
        else:
            self._write(buffers)

    def expect_reply(self, reply: PendingReply) -> None:
        self._replies.append(reply)
        if len(self._replies) > MAX_PENDING_REPLIES:
            self._pause(Pause.HELD_REPLIES)

    def completed(self, reply: PendingReply) -> None:
        """Called by a reply that is ready."""
        if self._life is _CLOSED or self._sends_soon:
            return
        if self._replies[0] is not reply or _UNREAD in self._pauses:
            self._hold(reply)
        elif len(self._replies) == 1:
            self._send_ready()
        else:
            # Those behind it may have waited for the same disk.
            self._sends_soon = True
            self._server.loop.call_soon(self._send_all_ready)

    def _send_all_ready(self) -> None:
        self._sends_soon = False
        self._send_ready()
        for reply in self._replies:
            if reply.buffers is not None and not reply.held_bytes:
                self._hold(reply)

    def _hold(self, reply: PendingReply) -> None:
        """Keep a reply until those before it are written; it counts like one that the client has not read."""
        assert reply.buffers is not None
        reply.held_bytes = sum(map(len, reply.buffers))
        self._held_bytes += reply.held_bytes
        self._server.reply_memory.take(reply.held_bytes)
        if self._held_bytes > MAX_HELD_BYTES:
            self._hurry()
            self._pause(Pause.HELD_BYTES)

    def _hurry(self) -> None:
        """What is held is memory that others wait for: a fetch at the head is answered with what there is."""
        first = self._replies[0]
        if first.buffers is None and first.hurried is not None:
            self._server.loop.call_soon(first.hurried)

    def _send_ready(self) -> None:
        replies, pauses = self._replies, self._pauses
        released = 0
        while (
            replies and replies[0].buffers is not None and _UNREAD not in pauses and self._life is not _CLOSED
        ):
            reply = replies.popleft()
            assert reply.buffers is not None
            released += reply.held_bytes
            buffers = reply.buffers
            if len(buffers) == 1 and replies and replies[0].buffers is not None:
                released += self._take_ready(buffers)
            self._write(buffers)
        if released:
            self._held_bytes -= released
            self._server.reply_memory.give_back(released)
        if self._life is Life.ENDING and not replies:
            self.close()
            return
        if self._is_reading:
            return
        if self._held_bytes > MAX_HELD_BYTES:
            self._hurry()
        else:
            pauses.discard(Pause.HELD_BYTES)
        if len(replies) <= MAX_PENDING_REPLIES:
            pauses.discard(Pause.HELD_REPLIES)
        # Not at once: this may be the answer to a request that is just being taken from the queue.
        self._server.loop.call_soon(self._handle_queued)

    def _take_ready(self, buffers: Reply) -> int:
        """Add further small replies to the first, as one buffer; how many of their bytes were held."""
        replies, released = self._replies, 0
        size = len(buffers[0])
        while replies and (more := replies[0].buffers) is not None:
            if len(more) != 1 or (size := size + len(more[0])) > _WRITTEN_TOGETHER_BYTES:
                break
            released += replies.popleft().held_bytes
            buffers += more
        buffers[:] = [b"".join(buffers)]
        return released

    def _write(self, buffers: Reply) -> None:
        transport = self._transport
        if transport is None or self._life is _CLOSED or not buffers:
            return
        size = sum(map(len, buffers))
        self.last_active = self._server.loop.time()
        self._server.metrics.bytes_out.value += size
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)
        if _UNREAD in self._pauses:
            self._unsent_bytes += size
            self._server.reply_memory.take(size)

    # -- the end

    def refuse(self, reason: str) -> None:
        """Close because of what the client sent, with one line in the log."""
        if not self.closed:
            self._server.refused(self, reason)
            self.close()

    def close(self) -> None:
        if not self.closed:
            self._life = Life.CLOSED
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        self._life = Life.CLOSED
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
    def has_unsent(self) -> bool:
        return Pause.UNREAD in self._pauses

    @property
    def is_waiting(self) -> bool:
        """A request of this connection is being worked on, or waits for memory to be read into."""
        waits = Pause.WORK in self._pauses or Pause.MEMORY in self._pauses
        return not self.closed and (bool(self._replies) or waits)

    def _release_frame(self) -> None:
        if self._frame is not None:
            frame, self._frame = self._frame, None
            self._server.frames.end(frame)


def _explain_size(size: int, largest: int) -> str:
    head = I32.pack(size)
    if head in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC"):
        return "an HTTP request on the port for Kafka clients; the HTTP port is another one"
    if head[:2] == b"\x16\x03":
        return (
            "a TLS handshake on a port that speaks plain text; set security.protocol=PLAINTEXT in the client"
        )
    return f"a request of {size} bytes; between {MIN_REQUEST_BYTES} and {largest} are taken (socket.request.max.bytes)"
