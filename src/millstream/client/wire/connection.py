"""A connection to one node. Several requests may be in flight; replies come in the order of the requests."""

import socket
from errno import ETIMEDOUT
from typing import Any

from millstream.client.errors import ClientError
from millstream.client.wire import requests, sasl, tls
from millstream.client.wire.settings import Address, ClusterSettings
from millstream.protocol.api import APIS, PEER_CLIENT
from millstream.protocol.peer_client import Greeting, encode_greeting
from millstream.protocol.stream import BrokenStream, RequestStream
from millstream.protocol.wire import MalformedRequest, Reader

_APIS = {api.name: api for api in APIS.values()}
_FIRST_BYTES = 64 * 1024


class Connection:
    """Raises OSError when it cannot connect or the connection breaks. A reply is a view of a buffer that the next reply
    overwrites: copy what you keep.

    The first request asks for the API versions, with a short time-out: a suspended node accepts connections but never
    answers, and a node that waits for others hangs up.
    """

    def __init__(self, address: Address, settings: ClusterSettings, *, is_for_client: bool = True) -> None:
        """With `is_for_client` false, sends no request at first: for requests between nodes, which `ask` sends."""
        self.address = address
        self._is_for_client = is_for_client
        self._settings = settings
        self._client_id = settings.client_id.encode()
        self._stream: RequestStream[bool] = RequestStream()
        self._buffer = bytearray(_FIRST_BYTES)
        self._size = memoryview(bytearray(4))
        self._open()
        if settings.asks_node_itself and is_for_client:
            self._ask_for_itself()

    def _open(self) -> None:
        settings = self._settings
        self._socket = socket.create_connection(self.address, timeout=settings.connect_timeout_s)
        try:
            if settings.receive_buffer_bytes > 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.security.protocol.has_tls:
                self._socket = tls.wrap(self._socket, self.address[0], settings.security.tls)
            self._socket.settimeout(settings.first_reply_timeout_s)
            if not self._is_for_client:
                return
            self._versions = requests.read_api_versions(self.request(requests.API_VERSIONS, 0, b""))
            self._socket.settimeout(settings.request_timeout_s)
            if settings.security.sasl is not None:
                sasl.authenticate(self.request, settings.security.sasl)
        except TimeoutError:
            self.close()
            raise TimeoutError(ETIMEDOUT, "the node accepts connections and does not answer") from None
        except BaseException:
            self.close()
            raise

    def _ask_for_itself(self) -> None:
        """Asks a node that forwards clients' requests to answer for itself and name the other nodes. Brokers of another
        kind hang up on this request; then connects again without it."""
        try:
            self.ask(PEER_CLIENT, encode_greeting(Greeting()))
        except OSError:
            self.close()
            self._stream.give_up()
            self._open()

    def close(self) -> None:
        self._socket.close()

    @property
    def expects_reply(self) -> bool:
        return self._stream.in_flight > 0

    def version_of(self, key: int, newest: int, oldest: int = 0) -> int:
        """The newest version of an API that both sides know."""
        low, high = self._versions.get(key, (0, -1))
        if min(high, newest) < max(low, oldest):
            host, port = self.address
            raise ClientError(
                f"the broker at {host}:{port} does not serve API {key} in versions {oldest} to {newest}",
                "UNSUPPORTED_VERSION",
            )
        return min(high, newest)

    def call(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """The reply to a request of the newest version that both sides know, but at most `version`. Nested structures
        of the request are passed as dictionaries."""
        from millstream.protocol.codec import decode_response, encode_request

        api = _APIS[name]
        version = self.version_of(api.key, api.max_version if version is None else version, api.min_version)
        flexible = api.is_flexible(version)
        reply = self.request(api.key, version, encode_request(api, version, fields), flexible=flexible)
        try:
            # A copy, because decoded values must not refer to the buffer.
            return decode_response(api, version, memoryview(bytes(reply)))
        except MalformedRequest as error:
            raise BrokenStream(0, f"the answer to {name} cannot be read: {error}") from error

    def ask(self, key: int, body: bytes) -> bytes:
        """The reply to a request outside of Kafka's protocol, as nodes and our own tools send them."""
        return bytes(self.request(key, 0, body))

    def request(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> memoryview:
        try:
            self.send(key, version, body, flexible=flexible)
            return self.receive()
        except BaseException:
            # Also after Ctrl-C: the pending reply would be taken for the next request's.
            self.close()
            raise

    def send(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> None:
        # Kafka's one exception: ApiVersions has an old header, as the client does not know the broker's versions yet.
        is_head_flexible = flexible and key != requests.API_VERSIONS
        head = self._stream.head(
            key, version, len(body), is_head_flexible, client_id=self._client_id, flexible=flexible
        )
        self._socket.sendall(head + body)

    def receive(self) -> memoryview:
        """The body of the next reply."""
        self._fill(self._size)
        size = self._stream.reply_size(self._size)
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        frame = memoryview(self._buffer)[:size]
        self._fill(frame)
        is_flexible, body = self._stream.received(frame)
        if not is_flexible:
            return body
        reader = Reader(body, flexible=True)
        reader.skip_tags()
        return body[reader.position :]

    def _fill(self, view: memoryview) -> None:
        while view:
            try:
                count = self._socket.recv_into(view)
            except ConnectionResetError:
                # The node closed the connection without reading the request.
                count = 0
            if not count:
                raise ConnectionError(
                    0, "the node closed the connection, as one does that is starting or waits for other nodes"
                )
            view = view[count:]
