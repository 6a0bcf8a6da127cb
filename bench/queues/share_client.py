"""Share consumers that cost next to nothing: requests from templates over raw sockets, all in one thread.

They speak Kafka's protocol, so the same ones drive Millstream and Apache Kafka.
"""

import socket
import struct
import uuid

from bench.groups.connection import compact_string, read_uvarint, uvarint
from bench.peers import PeerError

_FETCH, _ACKNOWLEDGE = 78, 79
_CLIENT = b"\0\5bench\0"
_I32 = struct.Struct(">i")
_ACCEPT = struct.Struct(">qqBbB")


class ShareConsumer:
    """One session. `window` messages are fetched at a time; the next are asked for before all replies are there."""

    def __init__(
        self, bootstrap: str, group: str, topic_id: uuid.UUID, *, window: int, one_by_one: bool
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.acknowledged = 0
        self._one_by_one = one_by_one
        self._head = compact_string(group) + compact_string(str(uuid.uuid4()))
        # 500 ms at most for something to come, as Kafka's clients; 16 MB; whole batches only where they are
        # acknowledged together.
        self._wants = struct.pack(">iiiiibb", 500, 1, 16 << 20, window, window, int(one_by_one), 0)
        self._topic = b"\2" + topic_id.bytes + b"\2" + _I32.pack(0)
        self._epoch = 0
        self._received = bytearray()
        self._held: list[tuple[int, int]] = []
        self._settling = 0
        self._done = b""

    def begin(self) -> None:
        self._fetch()

    def settle(self) -> None:
        """Each reply confirms what it is for."""

    def close(self) -> None:
        self.socket.close()

    def _fetch(self) -> None:
        held = [] if self._one_by_one else self._held
        ranges = b"".join(_ACCEPT.pack(first, last, 2, 1, 0) for first, last in held)
        self._settling = sum(last - first + 1 for first, last in held)
        body = self._wants + self._topic + uvarint(len(held) + 1) + ranges + b"\0\0" + b"\1" + b"\0"
        self.socket.sendall(_request(_FETCH, self._head + self._next_epoch() + body))

    def _acknowledge(self) -> None:
        """Every message by a request of its own."""
        before, behind = self._head, b"\0" + self._topic + b"\2"
        requests = []
        for first, last in self._held:
            for offset in range(first, last + 1):
                accept = _ACCEPT.pack(offset, offset, 2, 1, 0)
                requests.append(
                    _request(_ACKNOWLEDGE, before + self._next_epoch() + behind + accept + b"\0\0\0")
                )
        self.socket.sendall(b"".join(requests))

    def readable(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise PeerError("the broker closed the connection of a consumer")
        received = self._received
        received += data
        at = 0
        while len(received) - at >= 8:
            size = _I32.unpack_from(received, at)[0] + 4
            if len(received) - at < size:
                break
            if received[at + 4] == 0x4E:
                self._fetched(bytes(received[at + 9 : at + size]))
            else:
                self._settled(received[at + 8 : at + size])
            at += size
        del received[:at]

    def _fetched(self, reply: bytes) -> None:
        self.acknowledged += self._settling
        self._held = acquired_in(reply)
        if self._one_by_one and self._held:
            self._acknowledge()
        self._fetch()

    def _settled(self, reply: bytearray) -> None:
        """All of them are alike, but for what they answer."""
        if reply != self._done:
            _check_settled(reply)
            self._done = bytes(reply)
        self.acknowledged += 1

    def _next_epoch(self) -> bytes:
        epoch = _I32.pack(self._epoch)
        self._epoch += 1
        return epoch


def _request(api_key: int, body: bytes) -> bytes:
    """The first byte of a correlation id says what was asked."""
    head = struct.pack(">hhBBBB", api_key, 2, api_key, 0, 0, 0) + _CLIENT
    return _I32.pack(len(head) + len(body)) + head + body


def acquired_in(reply: bytes) -> list[tuple[int, int]]:
    """Ranges of offsets that a ShareFetch reply hands out. PeerError for one that refuses something."""
    (error,) = struct.unpack_from(">h", reply, 4)
    _, at = _text(reply, 6)
    at += 4
    ranges = []
    topics, at = read_uvarint(reply, at)
    if error:
        raise PeerError(f"ShareFetch was answered with error code {error}")
    for _ in range(topics - 1):
        partitions, at = read_uvarint(reply, at + 16)
        for _ in range(partitions - 1):
            fetch_error = struct.unpack_from(">h", reply, at + 4)[0]
            _, at = _text(reply, at + 6)
            settle_error = struct.unpack_from(">h", reply, at)[0]
            _, at = _text(reply, at + 2)
            if fetch_error or settle_error:
                raise PeerError(f"ShareFetch: error codes {fetch_error} and {settle_error} of a partition")
            size, at = read_uvarint(reply, at + 9)
            found, at = read_uvarint(reply, at + max(size - 1, 0))
            for _ in range(found - 1):
                ranges.append(struct.unpack_from(">qq", reply, at))
                at += 19
            at += 1
        at += 1
    return ranges


def _text(reply: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_uvarint(reply, at)
    end = at + max(size - 1, 0)
    return reply[at:end], end


def _check_settled(reply: bytearray) -> None:
    # No tags, throttle time, error code, no message, lock time, one topic, one partition: its index, its error.
    error = struct.unpack_from(">h", reply, 5)[0]
    if error or reply[12] != 2:
        raise PeerError(f"ShareAcknowledge was answered with error code {error}")
    settle_error = struct.unpack_from(">h", reply, 13 + 16 + 1 + 4)[0]
    if settle_error:
        raise PeerError(f"ShareAcknowledge: error code {settle_error} of the partition")
