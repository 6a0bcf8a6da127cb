"""One client's connection: bytes in, requests one after the other, answers in the same order.

    reading     a request comes in; `Limits` bound its head, body and speed
    answering   the handler runs, or the answer waits for a slow reader; further requests queue, up to a limit
    streaming   a task writes an endless answer; it waits for a client that does not read, then drops it
    lingering   a request was refused; the rest of it is discarded, so that the client can read the answer

No state lasts forever: `check` runs about once a second and closes what took too long.
"""

import asyncio
from collections import deque
from typing import cast

import httptools
import msgspec

from millstream.http.access import Hosts
from millstream.http.messages import Answer, Problem, Request, Response, Stream, head
from millstream.http.routes import Found, Routes
from millstream.observability.logs import get_logger
from millstream.runtime.sliced_reading import SLICE_BYTES, SlicedReading

_log = get_logger("millstream.http")

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MAX_PIPELINED = 64
_HIGH_WATER_BYTES = 32 * 1024
_FAILED = Problem(500, "the request failed inside the server; its log has the reason").response()


class Limits(msgspec.Struct, frozen=True):
    max_connections: int = 12_000
    max_head_bytes: int = 32 * 1024
    max_headers: int = 100
    max_buffered_bytes: int = 128 * 1024 * 1024
    """Bytes of all bodies that were received and not yet answered."""
    read_s: float = 10.0
    """Time to receive a request, plus the time for its body at the slowest speed."""
    slowest_bytes_per_s: int = 16 * 1024
    keep_alive_s: float = 75.0
    stall_s: float = 30.0
    """How long a client may leave answers unread."""
    linger_s: float = 5.0
    heartbeat_s: float = 15.0


class Shared(msgspec.Struct):
    """State that all connections of a server share."""

    routes: Routes
    hosts: Hosts
    limits: Limits
    date: bytes = b""
    connections: set["Connection"] = msgspec.field(default_factory=set)
    buffered_bytes: int = 0
    is_stopping: bool = False
    last_gone: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the last connection is gone while the server stops."""
    requests: int = 0


class _Turn(msgspec.Struct):
    """A queued request, or the answer to a refused one."""

    request: Request
    found: Found | None
    keep_alive: bool
    is_1_0: bool
    refusal: Response | None = None


class Connection(asyncio.Protocol):
    __slots__ = (
        "_body", "_changed_at", "_deadline", "_drained", "_found", "_head_bytes", "_headers", "_is_lingering",
        "_loop", "_parser", "_peer", "_pending", "_queue", "_quiet_bytes", "_reading", "_request", "_shared", "_stream",
        "_transport", "_turn", "_unread_bytes", "_url",
    )  # fmt: skip

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reading: SlicedReading | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._quiet_bytes = 0
        """Bytes since the last part of a body or end of a request: a head, trailers, or nothing useful."""
        self._request: Request | None = None
        """The request whose body is being received."""
        self._found: Found | None = None
        self._body: bytes | bytearray = b""
        self._queue: deque[_Turn] = deque()
        self._turn: _Turn | None = None
        """The request that is being answered."""
        self._pending: asyncio.Future[Answer] | None = None
        self._stream: Stream | None = None
        self._drained: asyncio.Future[None] | None = None
        """Set while the client reads more slowly than we write."""
        self._unread_bytes = 0
        self._is_lingering = False
        self._peer = ""
        self._changed_at = self._deadline = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reading = SlicedReading(self._transport, self._slice)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        self._deadline = self._loop.time() + self._shared.limits.read_s
        shared = self._shared
        if len(shared.connections) >= shared.limits.max_connections:
            self._refuse(Problem(503, "too many connections; try again later", {"retry-after": "5"}))
        shared.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        if self._reading is not None:
            self._reading.end()
        shared = self._shared
        shared.connections.discard(self)
        if shared.is_stopping and not shared.connections:
            shared.last_gone.set()
        waiting = [self._turn] if self._turn is not None else []
        shared.buffered_bytes -= len(self._body) + sum(
            len(each.request.body) for each in [*waiting, *self._queue]
        )
        self._body, self._turn = b"", None
        self._queue.clear()
        if isinstance(self._pending, asyncio.Task):
            self._pending.cancel()
        self._release()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        self._changed_at = self._loop.time()
        self._unread_bytes = 1 << 62

    def resume_writing(self) -> None:
        self._release()
        self._advance()

    def _release(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        assert self._reading is not None
        self._reading.received(data)

    def _slice(self, data: bytes) -> None:
        if self._is_lingering:
            return
        self._quiet_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            if not self._is_lingering:
                self._refuse(Problem(400, f"this is no HTTP request: {error}"))
            return
        if self._quiet_bytes > self._shared.limits.max_head_bytes and not self._is_lingering:
            self._refuse(Problem(431, "the head of the request is too long"))

    def _feed(self, data: bytes) -> None:
        """Ignores protocol upgrades, which Java's HttpClient offers with the first request of a connection.

        The parser would skip the body of such a request, so a new one parses it again, without the offer.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if self._is_lingering:
                    return
                data = self._head_without_offer() + data[offer.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
            else:
                return

    def _head_without_offer(self) -> bytes:
        version = self._parser.get_http_version().encode()
        fields = [b"%b: %b\r\n" % field for field in self._headers.items() if field[0] != b"upgrade"]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self._parser.get_method(), self._url, version, b"".join(fields))

    def on_message_begin(self) -> None:
        self._url, self._headers, self._head_bytes = b"", {}, 0
        self._deadline = self._loop.time() + self._shared.limits.read_s

    def on_url(self, piece: bytes) -> None:
        self._url += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._request is not None:
            return  # a trailer
        name = name.lower()
        self._head_bytes += len(name) + len(value)
        known = self._headers.get(name)
        self._headers[name] = value if known is None else known + b", " + value

    def on_headers_complete(self) -> None:
        if self._is_lingering:
            return
        method = self._parser.get_method().decode()
        if self._parser.should_upgrade() and method != "CONNECT":
            return  # parsed again, see `_feed`
        path, _, query = self._url.partition(b"?")
        self._request = Request(method, "", query, self._headers, {}, self._peer)
        try:
            self._found = self._admit(method, path)
        except Problem as problem:
            self._refuse(problem)

    def _admit(self, method: str, path: bytes) -> Found:
        shared, limits, headers = self._shared, self._shared.limits, self._headers
        if self._head_bytes + len(self._url) > limits.max_head_bytes or len(headers) > limits.max_headers:
            raise Problem(431, "the head of the request is too long")
        host = headers.get(b"host")
        if host is not None:
            shared.hosts.check(host)
        elif self._parser.get_http_version() != "1.0":
            raise Problem(400, "the header Host is missing")
        if path.startswith(b"http://"):
            path = b"/" + path[7:].partition(b"/")[2]
        if not path.isascii():
            raise Problem(400, "the path cannot be read: it must be percent-encoded UTF-8")
        found = shared.routes.find(method, path.decode())
        origin = headers.get(b"origin")
        if origin is not None and found.route.changes:
            shared.hosts.check_origin(origin, host or b"")
        most, length = found.route.max_body_bytes, int(headers.get(b"content-length", 0))
        if length > most:
            raise _too_large(most)
        assert self._reading is not None
        self._reading.size = max(length, SLICE_BYTES)  # read the body in one piece, unless it is chunked
        if headers.get(b"expect", b"").lower() == b"100-continue" and self._turn is None:
            assert self._transport is not None
            self._transport.write(_CONTINUE)
        return found

    def on_body(self, piece: bytes) -> None:
        self._quiet_bytes = 0
        if self._is_lingering or self._found is None:
            return
        assert self._reading is not None
        size, shared = len(self._body) + len(piece), self._shared
        self._reading.size = max(self._reading.size - len(piece), SLICE_BYTES)
        self._deadline += len(piece) / shared.limits.slowest_bytes_per_s
        if size > self._found.route.max_body_bytes:
            self._refuse(_too_large(self._found.route.max_body_bytes))
        elif shared.buffered_bytes + len(piece) > shared.limits.max_buffered_bytes:
            self._refuse(Problem(503, "too many requests are in memory", {"retry-after": "1"}))
        else:
            shared.buffered_bytes += len(piece)
            if not self._body:
                self._body = piece
            else:
                if isinstance(self._body, bytes):
                    self._body = bytearray(self._body)
                self._body += piece

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        request, found, self._request = self._request, self._found, None
        if self._is_lingering or request is None or found is None:
            return
        request.path, request.params = found.path, found.params
        request.body, self._body = bytes(self._body), b""
        self._shared.requests += 1
        keep_alive = self._parser.should_keep_alive()
        turn = _Turn(request, found, keep_alive, self._parser.get_http_version() == "1.0")
        if len(self._queue) >= _MAX_PIPELINED:
            self._shared.buffered_bytes -= len(request.body)
            self._refuse(Problem(503, "too many requests without waiting for their answers"))
            return
        self._queue.append(turn)
        if self._turn is None:
            self._advance()
        elif self._transport is not None:
            assert self._reading is not None
            self._reading.pause()

    def _refuse(self, problem: Problem) -> None:
        """Answer without waiting for the rest of the request, and read no further ones."""
        self._is_lingering = True
        self._shared.buffered_bytes -= len(self._body)
        self._body = b""
        request = self._request or Request("GET", "", b"", {}, {}, self._peer)
        self._request = None
        self._queue.append(_Turn(request, None, False, False, problem.response()))
        self._advance()

    def _advance(self) -> None:
        """Answer the next queued request, unless one is being answered."""
        while self._turn is None and self._queue and self._drained is None and self._transport is not None:
            turn = self._turn = self._queue.popleft()
            if turn.found is None:
                assert turn.refusal is not None
                self._write(turn.refusal)
                continue
            try:
                answer = turn.found.route.handler(turn.request)
            except Problem as problem:
                answer = problem.response()
            except Exception:  # noqa: BLE001 - whatever a handler raises, the client gets an answer and the log the reason
                answer = self._failure(turn)
            if isinstance(answer, Response):
                self._write(answer)
            elif isinstance(answer, Stream):
                self._start_stream(answer)
            else:
                self._pending = asyncio.ensure_future(answer)
                self._pending.add_done_callback(self._answered)
        if self._turn is None and self._reading is not None:
            self._reading.resume()

    def _answered(self, pending: "asyncio.Future[Answer]") -> None:
        self._pending = None
        turn = self._turn
        if turn is None or self._transport is None:
            if not pending.cancelled():
                pending.exception()  # the client has gone
            return
        try:
            answer = pending.result()
        except Problem as problem:
            answer = problem.response()
        except asyncio.CancelledError:
            answer = Problem(503, "the server is stopping", {"retry-after": "1"}).response()
        except Exception:  # noqa: BLE001 - as above
            answer = self._failure(turn)
        if isinstance(answer, Stream):
            self._start_stream(answer)
        else:
            self._write(answer)
            self._advance()

    def _failure(self, turn: _Turn) -> Response:
        _log.exception("request failed", method=turn.request.method, path=turn.request.path)
        return _FAILED

    def _write(self, response: Response) -> None:
        turn, body = self._turn, response.body
        assert turn is not None
        assert self._transport is not None
        start = self._head(response, turn)
        if response.status != 204:
            start += b"content-length: %d\r\n\r\n" % len(body)
        else:
            start += b"\r\n"
        if turn.request.method == "HEAD" or not body:
            self._transport.write(start)
        else:
            self._transport.write(start + body if len(body) < _HIGH_WATER_BYTES else start)
            if len(body) >= _HIGH_WATER_BYTES:
                self._transport.write(body)
        self._finish(turn)

    def _head(self, answer: Answer, turn: _Turn) -> bytes:
        try:
            start = head(answer, self._shared.date)
        except ValueError:  # an invalid header
            return self._head(self._failure(turn), turn)
        if not turn.keep_alive or self._shared.is_stopping:
            turn.keep_alive = False
            return start + b"connection: close\r\n"
        return start + b"connection: keep-alive\r\n" if turn.is_1_0 else start

    def _finish(self, turn: _Turn) -> None:
        assert self._transport is not None
        self._turn = None
        self._shared.buffered_bytes -= len(turn.request.body)
        limits = self._shared.limits
        if self._is_lingering and turn.found is None:
            self._deadline = self._loop.time() + limits.linger_s
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()
        elif not turn.keep_alive:
            self._transport.close()
        elif not self._quiet_bytes and self._request is None:
            self._deadline = self._loop.time() + limits.keep_alive_s

    def _start_stream(self, stream: Stream) -> None:
        turn = self._turn
        assert turn is not None
        assert self._transport is not None
        if turn.is_1_0:
            turn.keep_alive = False
        start = self._head(stream, turn)
        self._transport.write(start + (b"\r\n" if turn.is_1_0 else b"transfer-encoding: chunked\r\n\r\n"))
        if turn.request.method == "HEAD":
            self._finish(turn)
            return
        self._stream = stream
        self._changed_at = self._loop.time()
        self._pending = self._loop.create_task(self._run_stream(stream, turn))

    async def _run_stream(self, stream: Stream, turn: _Turn) -> Answer:
        try:
            await stream.run(self)
        except asyncio.CancelledError:
            pass  # the client went, or the server stops
        except ConnectionError:
            self.abort()
        except Exception:  # noqa: BLE001 - the client has had a part of the answer, and must see that it has no end
            _log.exception("stream failed", path=turn.request.path)
            self.abort()
        self._stream = self._pending = None
        if self._transport is not None and not self._transport.is_closing():
            if not turn.is_1_0:
                self._transport.write(b"0\r\n\r\n")
            self._finish(turn)
            self._advance()
        return _FAILED

    async def send(self, data: bytes) -> None:
        """Write a part of a stream; waits while the client reads more slowly."""
        if self._transport is None or self._transport.is_closing() or self._turn is None:
            raise ConnectionResetError("the client is gone")
        self._write_piece(data, self._turn)
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def _write_piece(self, data: bytes, turn: _Turn) -> None:
        assert self._transport is not None
        self._changed_at = self._loop.time()
        self._transport.write(data if turn.is_1_0 else b"%x\r\n%b\r\n" % (len(data), data))

    def check(self, now: float) -> None:
        """Close what took too long; keep a quiet stream alive."""
        transport, limits = self._transport, self._shared.limits
        if transport is None:
            return
        if self._drained is not None:
            unread = transport.get_write_buffer_size()
            if unread < self._unread_bytes:
                self._unread_bytes, self._changed_at = unread, now
            elif now - self._changed_at > limits.stall_s:
                transport.abort()
        elif self._stream is not None:
            if self._stream.heartbeat and self._turn and now - self._changed_at >= limits.heartbeat_s:
                self._write_piece(self._stream.heartbeat, self._turn)
        elif self._turn is None and now > self._deadline:
            if self._is_lingering or (not self._quiet_bytes and self._request is None):
                transport.abort() if self._is_lingering else transport.close()
            else:
                self._refuse(Problem(408, "the request came too slowly"))

    def stop(self) -> None:
        """Finish the current answer and close; a stream ends at once."""
        if self._stream is not None and self._pending is not None:
            if self._turn is not None:
                self._turn.keep_alive = False
            self._pending.cancel()
        elif self._turn is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body is longer than {most} bytes")
