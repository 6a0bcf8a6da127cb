"""Admin requests that librdkafka does not have, sent over a connection of our own to any node of the cluster."""

import socket
import struct
from typing import Any

from millstream.cli.errors import CommandError, Unreachable
from millstream.cli.kafka import CONNECT_TIMEOUT_S, DEFAULT_PORT
from millstream.cli.options import parse_address
from millstream.protocol.api import APIS
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.errors import ErrorCode
from millstream.protocol.wire import MalformedRequest

_REPLY_TIMEOUT_S = 65.0
_MAX_REPLY_BYTES = 256 << 20
_BY_NAME = {api.name: api for api in APIS.values()}


class ClusterCalls:
    """One connection to the first bootstrap address that accepts it; a context manager.

    with ClusterCalls("localhost:9092") as calls:
        calls.call("list_partition_reassignments", topics=None).topics
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._socket = _connect(bootstrap)
        self._correlation = 0

    def __enter__(self) -> "ClusterCalls":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, name: str, **fields: Any) -> Any:
        """The reply to the newest version of the request; dictionaries stand for the entities within it."""
        api = _BY_NAME[name]
        self._correlation += 1
        header = struct.pack(">hhih", api.key, api.max_version, self._correlation, -1)
        tags = b"\0" if api.is_flexible(api.max_version) else b""
        request = header + tags + encode_request(api, api.max_version, fields)
        try:
            self._socket.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", self._read(4))
            if not 4 <= size <= _MAX_REPLY_BYTES:
                raise CommandError(f"what listens at {self.bootstrap} does not speak Kafka's protocol")
            reply = self._read(size)
        except OSError as error:
            raise Unreachable(self.bootstrap, error.strerror or str(error)) from error
        try:
            return decode_response(api, api.max_version, memoryview(reply)[4 + len(tags) :])
        except MalformedRequest as error:
            raise CommandError(f"the answer to {name} cannot be read: {error}") from error

    def checked(self, action: str, name: str, **fields: Any) -> Any:
        """As `call`; an error of the reply as a whole ends the command."""
        reply = self.call(name, **fields)
        if reply.error_code != ErrorCode.NONE:
            raise CommandError(f"{action}: {reason_of(reply)}")
        return reply

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionError(0, "the node closed the connection")
            data += part
        return bytes(data)


def reason_of(result: Any) -> str:
    """What went wrong, in words and by Kafka's name."""
    try:
        name = ErrorCode(result.error_code).name
    except ValueError:
        name = f"error {result.error_code}"
    message = getattr(result, "error_message", None)
    return f"{message} ({name})" if message else name


def _connect(bootstrap: str) -> socket.socket:
    reason = "no address is given"
    for address in (part.strip() for part in bootstrap.split(",")):
        if not address:
            continue
        host, port = parse_address(address if ":" in address else f"{address}:{DEFAULT_PORT}", "--bootstrap")
        try:
            connection = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            connection.settimeout(_REPLY_TIMEOUT_S)
            return connection
    raise Unreachable(bootstrap, reason)
