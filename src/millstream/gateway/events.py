"""A delivered message as JSON, as a server-sent event (SSE), and as a binary frame."""

import base64
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from millstream.gateway.places import MessageId
from millstream.protocol.message_frame import MessageFrame, encode_frame
from millstream.protocol.records import Record

HEARTBEAT = b": keep-alive\n\n"

# In frames, these fields of the JSON form are headers.
ID_HEADER = "millstream.id"
DELIVERY_HEADER = "millstream.delivery_count"


def as_json(
    message_id: str, topic: str, partition: int, record: Record, delivery_count: int | None
) -> dict[str, Any]:
    """`payload` is text if it is UTF-8, else base64 with an `encoding` field; the same for the key."""
    found: dict[str, Any] = {
        "id": message_id,
        "payload": None,
        "created_at": _rfc3339(record.timestamp_ms),
        "topic": topic,
        "partition": partition,
        "key": None,
        "headers": {},
        "offset": record.offset,
    }
    if delivery_count is not None:
        found["delivery_count"] = delivery_count
    for field, data in (("payload", record.value), ("key", record.key)):
        if data is None:
            continue
        try:
            found[field] = str(data, "utf-8")
        except UnicodeDecodeError:
            found[field] = base64.b64encode(data).decode()
            found["encoding" if field == "payload" else "key_encoding"] = "base64"
    if record.headers:
        found["headers"] = {name: _lenient(value) for name, value in record.headers}
    return found


def as_event(found: dict[str, Any]) -> bytes:
    """The `partition` line is for clients that use it; others ignore unknown fields."""
    return b"id: %b\ndata: %b\npartition: %d\n\n" % (
        found["id"].encode(), orjson.dumps(found), found["partition"],
    )  # fmt: skip


def as_frame(message_id: MessageId, record: Record, delivery_count: int | None) -> bytes:
    headers = (*record.headers, (ID_HEADER, str(message_id).encode()))
    if delivery_count is not None:
        headers = (*headers, (DELIVERY_HEADER, str(delivery_count).encode()))
    return encode_frame(MessageFrame(record.timestamp_ms, record.key, record.value, headers))


def _lenient(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


@lru_cache(1_024)
def _rfc3339(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # senders may write any number
        moment = datetime.fromtimestamp(0, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
