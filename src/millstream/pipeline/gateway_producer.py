"""Points through an HTTP gateway instead of to the brokers, for streamers that can reach nothing else."""

import http.client
import threading
from collections.abc import Callable, Sequence
from urllib.parse import quote, urlsplit

import orjson

from millstream.client import ClientError, ProducerRecord

_TIMEOUT_S = 70.0
_RETRY_S = 1.0
_MAX_RETRY_S = 30.0


class GatewayProducer:
    """`send_batch` returns when the gateway has acknowledged all; what it cannot take now is sent again.

    After an answer that got lost a batch may be stored twice: over HTTP there are no sequence numbers.
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
        while True:
            status, text, retry_after = self._post(f"{self._path}/produce?topic={quote(topic)}", body)
            if status == 200:
                return
            if 400 <= status < 500 and status != 429:
                raise ClientError(f"the gateway refused the points: {status} {text}")
            self._on_waiting(f"the gateway answered {status} {text}" if status else text)
            if self._stop.wait(min(float(retry_after or _RETRY_S), _MAX_RETRY_S)) and not status:
                raise ClientError("the gateway cannot be reached")

    def _post(self, path: str, body: bytes) -> tuple[int, str, str | None]:
        try:
            self._connection.request("POST", path, body, {"content-type": "application/x-ndjson"})
            answer = self._connection.getresponse()
            text = answer.read().decode("utf-8", "replace")[:200]
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return 0, f"the gateway cannot be reached: {error}", None
        return answer.status, text, answer.getheader("retry-after")


def _line(record: ProducerRecord) -> bytes:
    value = record.value if isinstance(record.value, str) else bytes(record.value).decode()
    line: dict[str, object] = {"payload": value}
    if record.key is not None:
        line["key"] = record.key if isinstance(record.key, str) else bytes(record.key).decode()
    if record.timestamp_ms is not None:
        line["timestamp"] = record.timestamp_ms
    return orjson.dumps(line)
