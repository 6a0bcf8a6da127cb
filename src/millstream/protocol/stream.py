"""The requests and replies of one connection, without I/O: frames, correlation ids, requests in flight, deadlines.

The connection's owner writes `head(...)` and the body, reads a frame of the size from `reply_size`, and passes it to
`received`, which finds its waiter. Deadlines use the owner's clock.
"""

from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from millstream.protocol.wire import I32

Waiter = TypeVar("Waiter")

MOST_REPLY_BYTES = 1 << 30
CORRELATION_BYTES = 4
_HEAD = Struct(">ihhih")
_SIZE_BYTES = 4


class BrokenStream(ConnectionError):
    """The bytes are no reply to a request of this stream; the connection is no longer usable."""


class TooManyInFlight(Exception):
    """The limit of requests in flight is reached."""


class _Waiting(NamedTuple, Generic[Waiter]):
    waiter: Waiter
    deadline: float | None


class RequestStream(Generic[Waiter]):
    """With `in_order`, as in Kafka, a reply to any request but the oldest breaks the stream.

    Without it, replies may come in any order, and those without a waiter are ignored.

    >>> stream = RequestStream[str]()
    >>> head = stream.head(18, 0, 0, "who waits")
    >>> stream.received(memoryview(bytes.fromhex("00000001 0000")))[0]
    'who waits'
    """

    def __init__(
        self, *, most_in_flight: int = 1000, most_reply_bytes: int = MOST_REPLY_BYTES, in_order: bool = True
    ) -> None:
        self._most_in_flight = most_in_flight
        self._most_reply_bytes = most_reply_bytes
        self._in_order = in_order
        self.correlation = 0
        """The correlation id of the last request."""
        self._waiting: dict[int, _Waiting[Waiter]] = {}

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def head(
        self,
        api_key: int,
        version: int,
        body_bytes: int,
        waiter: Waiter,
        *,
        client_id: bytes | None = None,
        flexible: bool = False,
        deadline: float | None = None,
    ) -> bytes:
        """The start of a request's frame, before its body; `waiter` waits for the reply from now on."""
        if len(self._waiting) >= self._most_in_flight:
            raise TooManyInFlight(f"{self._most_in_flight} requests wait for their replies")
        self._waiting[self._next_correlation()] = _Waiting(waiter, deadline)
        return self._head(api_key, version, body_bytes, client_id, flexible=flexible)

    def head_without_reply(self, api_key: int, version: int, body_bytes: int) -> bytes:
        """As `head`, for a request without a reply, or whose reply is ignored."""
        self._next_correlation()
        return self._head(api_key, version, body_bytes, None, flexible=False)

    def reply_size(self, head: bytes | bytearray | memoryview, position: int = 0) -> int:
        """The size of the frame, without the four bytes of the size itself."""
        size: int = I32.unpack_from(head, position)[0]
        if not CORRELATION_BYTES <= size <= self._most_reply_bytes:
            raise BrokenStream(0, "what listens there does not speak Kafka's protocol, or only through TLS")
        return size

    def received(self, frame: memoryview) -> tuple[Waiter | None, memoryview]:
        """The waiter for the reply, if any, and the bytes after the correlation id."""
        correlation: int = I32.unpack_from(frame)[0]
        if self._in_order and next(iter(self._waiting), None) != correlation:
            raise BrokenStream(0, "the node answered another request")
        waiting = self._waiting.pop(correlation, None)
        return None if waiting is None else waiting.waiter, frame[CORRELATION_BYTES:]

    def forget(self, correlation: int) -> None:
        """Stop waiting for this reply. Not for a stream in order, which the late reply would break."""
        self._waiting.pop(correlation, None)

    def deadline(self) -> float | None:
        """The deadline of the oldest request."""
        return next((each.deadline for each in self._waiting.values()), None)

    def give_up(self) -> list[Waiter]:
        """Stop: returns all waiters, the oldest first; they will get no replies."""
        waiting, self._waiting = self._waiting, {}
        return [each.waiter for each in waiting.values()]

    def _next_correlation(self) -> int:
        self.correlation = (self.correlation + 1) & 0x7FFFFFFF
        return self.correlation

    def _head(
        self, api_key: int, version: int, body_bytes: int, client_id: bytes | None, *, flexible: bool
    ) -> bytes:
        name, tags = client_id or b"", b"\0" if flexible else b""
        size = _HEAD.size - _SIZE_BYTES + len(name) + len(tags) + body_bytes
        length = -1 if client_id is None else len(name)
        return _HEAD.pack(size, api_key, version, self.correlation, length) + name + tags
