"""One blocking connection to a node, for requests that librdkafka does not have and for batches as they are stored."""

import socket
import struct
from errno import ETIMEDOUT
from typing import Any

from millstream.protocol.api import APIS
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.peer_client import for_itself
from millstream.protocol.wire import I32, MalformedRequest

Address = tuple[str, int]

_CLIENT_ID = b"millstream"
_CONNECT_SECONDS = 5.0
# The first answer costs a node nothing; one that is stopped, or hangs, is not waited for.
_FIRST_REPLY_SECONDS = 10.0
# More than a node itself takes before it answers that something took too long.
_REPLY_SECONDS = 65.0
_LARGEST_REPLY = 1 << 30
_APIS = {api.name: api for api in APIS.values()}
_HEAD = struct.Struct(">ihhih")


class BadAnswer(ConnectionError):
    """What came is not an answer to the request."""


class NodeConnection:
    """OSError when it cannot be made, or breaks. A raw reply is a view of a buffer that the next one overwrites."""

    def __init__(self, address: Address) -> None:
        self._buffer = bytearray(64 * 1024)
        self._correlation = 0
        self._socket = _connected(address)
        try:
            self._socket.settimeout(_FIRST_REPLY_SECONDS)
            self._ask_for_itself()
        except TimeoutError:
            self._socket.close()
            raise TimeoutError(ETIMEDOUT, "the node accepts connections and does not answer") from None
        except OSError:
            # Another kind of broker hangs up on what it does not know.
            self._socket.close()
            self._socket = _connected(address)
        self._socket.settimeout(_REPLY_SECONDS)

    def _ask_for_itself(self) -> None:
        """A node that forwards for clients is to say what it has itself, and which others there are."""
        request = for_itself(self._correlation)
        self._socket.sendall(I32.pack(len(request)) + request)
        self._receive()

    def close(self) -> None:
        self._socket.close()

    def call(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """The reply to the request, of its newest version unless another is given; dictionaries stand for the
        entities within it."""
        api = _APIS[name]
        if version is None:
            version = api.max_version
        body = encode_request(api, version, fields)
        reply = self.request(api.key, version, body, flexible=api.is_flexible(version))
        try:
            # Nothing of what is decoded may refer to the buffer.
            return decode_response(api, version, memoryview(bytes(reply)))
        except MalformedRequest as error:
            raise BadAnswer(0, f"the answer to {name} cannot be read: {error}") from error

    def ask(self, key: int, body: bytes) -> bytes:
        """The reply to a request that is no Kafka message: of nodes among themselves, and our own tools."""
        return bytes(self.request(key, 0, body, flexible=False))

    def request(self, key: int, version: int, body: bytes, *, flexible: bool) -> memoryview:
        self._correlation += 1
        tags = b"\0" if flexible else b""
        size = _HEAD.size - 4 + len(_CLIENT_ID) + len(tags) + len(body)
        head = _HEAD.pack(size, key, version, self._correlation, len(_CLIENT_ID))
        self._socket.sendall(head + _CLIENT_ID + tags + body)
        reply = self._receive()
        if I32.unpack_from(reply)[0] != self._correlation:
            raise BadAnswer(0, "the node answered another request")
        return reply[4 + len(tags) :]

    def _receive(self) -> memoryview:
        size = I32.unpack(self._fill(4))[0]
        if not 4 <= size <= _LARGEST_REPLY:
            raise BadAnswer(0, "what listens there does not speak Kafka's protocol")
        return self._fill(size)

    def _fill(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        whole = memoryview(self._buffer)[:size]
        rest = whole
        while rest:
            try:
                count = self._socket.recv_into(rest)
            except ConnectionResetError:
                # It was closed before the request was read.
                count = 0
            if not count:
                raise ConnectionError(
                    0, "the node closed the connection, as one does that is starting or waits for other nodes"
                )
            rest = rest[count:]
        return whole


def _connected(address: Address) -> socket.socket:
    connection = socket.create_connection(address, timeout=_CONNECT_SECONDS)
    connection.settimeout(_REPLY_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
