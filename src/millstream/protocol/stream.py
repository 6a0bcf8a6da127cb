"""The requests and replies of one connection, without I/O: frames, correlation ids, what is in flight, deadlines.

Who owns the connection writes `head(...)` and the body, reads a frame of the size that `reply_size` tells, and gives it
to `received`, which finds who waits for it. Time-outs are deadlines by the owner's clock.
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
    """The bytes are no reply to a request of this stream; the connection cannot be used any more."""


class TooManyInFlight(Exception):
    """The most requests that may be in flight are in flight already."""


class _Waiting(NamedTuple, Generic[Waiter]):
    waiter: Waiter
    deadline: float | None


class RequestStream(Generic[Waiter]):
    """`in_order` is Kafka's rule: a reply to any request but the oldest breaks the stream. Without it replies come in
    any order, and those that are not waited for are passed over.

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
        """Of the request that was sent last."""
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
        """All of a request's frame but its body, which follows; `waiter` waits for the reply from now on."""
        if len(self._waiting) >= self._most_in_flight:
            raise TooManyInFlight(f"{self._most_in_flight} requests wait for their replies")
        self._waiting[self._next_correlation()] = _Waiting(waiter, deadline)
        return self._head(api_key, version, body_bytes, client_id, flexible=flexible)

    def head_without_reply(self, api_key: int, version: int, body_bytes: int) -> bytes:
        """As `head`, for a request that gets no answer, or whose answer nobody waits for."""
        self._next_correlation()
        return self._head(api_key, version, body_bytes, None, flexible=False)

    def reply_size(self, head: bytes | bytearray | memoryview, position: int = 0) -> int:
        """Bytes of the frame behind the four that tell its size."""
        size: int = I32.unpack_from(head, position)[0]
        if not CORRELATION_BYTES <= size <= self._most_reply_bytes:
            raise BrokenStream(0, "what listens there does not speak Kafka's protocol, or only through TLS")
        return size

    def received(self, frame: memoryview) -> tuple[Waiter | None, memoryview]:
        """The waiter for the reply, None where there is none, and what stands behind the correlation id."""
        correlation: int = I32.unpack_from(frame)[0]
        if self._in_order and next(iter(self._waiting), None) != correlation:
            raise BrokenStream(0, "the node answered another request")
        waiting = self._waiting.pop(correlation, None)
        return None if waiting is None else waiting.waiter, frame[CORRELATION_BYTES:]

    def forget(self, correlation: int) -> None:
        """This reply is no longer waited for. Not for a stream in order, which it would break when it comes."""
        self._waiting.pop(correlation, None)

    def deadline(self) -> float | None:
        """When the oldest request's time is up; in order, those behind it are answered after it."""
        return next((each.deadline for each in self._waiting.values()), None)

    def give_up(self) -> list[Waiter]:
        """All who wait, the oldest first; there will be no replies."""
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
