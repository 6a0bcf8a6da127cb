"""Sends points over HTTP or MQTT, for streamers that cannot reach the brokers."""

import http.client
import socket
import threading
from collections.abc import Callable, Sequence
from urllib.parse import quote, urlsplit

import orjson

from millstream.client import ClientError, ProducerRecord
from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Connack, Connect, Disconnect, Packet, Puback, Publish
from millstream.protocol.mqtt.reasons import Reason, Violation

_TIMEOUT_S = 70.0
_RETRY_S = 1.0
_MAX_RETRY_S = 30.0
_DEFAULT_PORT = 1883
# Below a node's default limit of 1,000.
_MOST_UNDER_WAY = 500
_ERRORS_FROM = 0x80


class GatewayProducer:
    """`send_batch` returns when the gateway has acknowledged all records; what it cannot accept yet is sent again.

    If an answer is lost, a batch may be stored twice: HTTP has no sequence numbers.
    """

    def __init__(self, url: str, stop: threading.Event, on_waiting: Callable[[str], None]) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ClientError(f"{url!r} is no address of a gateway; write http://HOST:PORT")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        self._path = parts.path.rstrip("/")
        self._stop = stop
        self._on_waiting = on_waiting

    def send_batch(self, batch: Sequence[ProducerRecord]) -> None:
        by_topic: dict[str, list[ProducerRecord]] = {}
        for record in batch:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, records in by_topic.items():
            self._send(topic, b"\n".join(map(_line, records)))

    def close(self) -> None:
        self._connection.close()

    def _send(self, topic: str, body: bytes) -> None:
        headers = {"content-type": "application/x-ndjson"}
        while True:
            pause_s, status = _RETRY_S, 0
            try:
                self._connection.request("POST", f"{self._path}/produce?topic={quote(topic)}", body, headers)
                answer = self._connection.getresponse()
                status = answer.status
                said = f"{status} {answer.read().decode('utf-8', 'replace')[:200]}"
                pause_s = min(float(answer.getheader("retry-after") or _RETRY_S), _MAX_RETRY_S)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                said = f"it cannot be reached: {error}"
            if status == 200:
                return
            if 400 <= status < 500 and status != 429:
                raise ClientError(f"the gateway refused the points: {said}")
            self._on_waiting(f"the gateway: {said}")
            if self._stop.wait(pause_s) and not status:
                raise ClientError("the gateway cannot be reached")


def _line(record: ProducerRecord) -> bytes:
    line: dict[str, object] = {"payload": _bytes(record.value).decode()}
    if record.key is not None:
        line["key"] = _bytes(record.key).decode()
    if record.timestamp_ms is not None:
        line["timestamp"] = record.timestamp_ms
    return orjson.dumps(line)


class MqttProducer:
    """`send_batch` returns when all records are acknowledged with QoS 1; after a lost connection some may be stored
    twice.

    The log stamps points with the time of arrival, because MQTT messages carry no timestamp.
    """

    def __init__(self, url: str, stop: threading.Event, on_waiting: Callable[[str], None]) -> None:
        parts = urlsplit(url)
        if parts.scheme != "mqtt" or not parts.hostname:
            raise ClientError(f"{url!r} is no address of an MQTT listener; write mqtt://HOST:PORT")
        self._address = (parts.hostname, parts.port or _DEFAULT_PORT)
        self._stop = stop
        self._on_waiting = on_waiting
        self._connection: _Connection | None = None

    def send_batch(self, batch: Sequence[ProducerRecord]) -> None:
        messages = [(_topic(record), _bytes(record.value)) for record in batch]
        while messages:
            try:
                if self._connection is None:
                    self._connection = _Connection(self._address)
                some = messages[: self._connection.window]
                self._connection.publish(some)
                messages = messages[len(some) :]
            except (OSError, EOFError, Violation) as error:
                self.close()
                self._on_waiting(f"the MQTT listener cannot be reached: {error}")
                if self._stop.wait(_RETRY_S):
                    raise ClientError("the MQTT listener cannot be reached") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(side=Side.CLIENT, version=V5)
        self._received: list[Packet | Violation] = []
        self._socket.sendall(encode(Connect("", V5, True, 0), V5))
        connack = self._hear()
        if not isinstance(connack, Connack) or connack.reason:
            raise ClientError(f"the MQTT listener refused the connection: {connack}")
        self.window = min(connack.properties.receive_maximum or 65_535, _MOST_UNDER_WAY)

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        packets = (
            Publish(topic, payload, 1, number) for number, (topic, payload) in enumerate(messages, start=1)
        )
        self._socket.sendall(b"".join(encode(packet, V5) for packet in packets))
        waiting = len(messages)
        while waiting:
            heard = self._hear()
            if isinstance(heard, Disconnect):
                raise EOFError(heard.properties.reason_string or f"disconnected with 0x{heard.reason:02x}")
            if isinstance(heard, Puback):
                if heard.reason >= _ERRORS_FROM:
                    text = heard.properties.reason_string or Reason(heard.reason).name
                    raise ClientError(f"the points were refused: {text}")
                waiting -= 1

    def close(self) -> None:
        self._socket.close()

    def _hear(self) -> Packet:
        while not self._received:
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError("the connection was closed")
            self._received += self._decoder.feed(data)
        heard = self._received.pop(0)
        if isinstance(heard, Violation):
            raise heard
        return heard


def _topic(record: ProducerRecord) -> str:
    key = _bytes(record.key).decode()
    # What MQTT has no topic for goes without a key.
    return (
        f"$queue/{record.topic}/{key}"
        if key and not {"+", "#", "\0"} & set(key)
        else f"$queue/{record.topic}"
    )


def _bytes(value: str | bytes | bytearray | memoryview | None) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value or b"")
