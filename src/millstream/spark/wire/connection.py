"""One connection to one broker. Requests may be sent ahead; replies come in their order."""

import socket
from collections import deque

import numpy as np

from millstream.protocol.wire import I32
from millstream.spark.wire import requests, sasl, tls
from millstream.spark.wire.errors import SourceError
from millstream.spark.wire.settings import ClusterSettings

_CORRELATION_BYTES = 4
_LARGEST_REPLY = 1 << 30


class Connection:
    """A reply is a view of a buffer that the next one overwrites: take out of it what you keep."""

    def __init__(self, host: str, port: int, settings: ClusterSettings) -> None:
        self._settings = settings
        self._next_id = 1
        self._expected: deque[int] = deque()
        self._buffer = np.empty(64 * 1024, dtype=np.uint8)
        self._size = bytearray(4)
        self._socket = socket.create_connection((host, port), timeout=settings.request_timeout_s)
        try:
            if settings.receive_buffer_bytes > 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.security.protocol.has_tls:
                self._socket = tls.wrap(self._socket, host, settings.security.tls)
            if settings.security.sasl is not None:
                sasl.authenticate(self.request, settings.security.sasl)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    @property
    def expects_reply(self) -> bool:
        return bool(self._expected)

    def request(self, api: int, version: int, body: bytes) -> memoryview:
        self.send(api, version, body)
        return self.receive()

    def send(self, api: int, version: int, body: bytes) -> None:
        head = requests.header(api, version, self._next_id, self._settings.client_id)
        self._expected.append(self._next_id)
        self._next_id += 1
        self._socket.sendall(I32.pack(len(head) + len(body)) + head + body)

    def receive(self) -> memoryview:
        """The body of the next reply."""
        self._fill(memoryview(self._size))
        size = int.from_bytes(self._size, "big")
        if not _CORRELATION_BYTES <= size <= _LARGEST_REPLY:
            raise ConnectionError(
                f"a reply claims {size} bytes; is this a Kafka listener of the right protocol?"
            )
        if size > len(self._buffer):
            self._buffer = np.empty(size, dtype=np.uint8)
        view = self._buffer.data[:size]
        self._fill(view)
        if I32.unpack_from(view)[0] != self._expected.popleft():
            raise SourceError("a broker answered requests out of order")
        return view[_CORRELATION_BYTES:]

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]
