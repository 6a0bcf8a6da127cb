"""An application message, and its form as a record of the log.

The payload is the value; user properties are headers, in the same order. Everything else is in headers of our own, and
only where it differs from the default: a record that a Kafka client wrote is a message of QoS 1. A user property whose
name begins like ours is written behind `mqtt.user.`.
"""

import enum
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from millstream.doors.messages import Message as LogMessage
from millstream.mqtt.rules import Route, Rules
from millstream.protocol.mqtt.packets import NO_PUBLISH_PROPERTIES
from millstream.protocol.mqtt.properties import MOST_USER_PROPERTIES, PublishProperties, UserProperties
from millstream.protocol.mqtt.topics import is_name
from millstream.protocol.records import Headers, Record

NEVER: Final = 0
"""The expiry time of a message that does not expire."""

_OURS: Final = "mqtt."
_ESCAPE: Final = "mqtt.user."
_LONGEST_TEXT: Final = 65_535
_LONGEST_KEPT: Final = 256
_MOST_KEPT: Final = 4_096
_WHERE_AND_WHO: Final = frozenset({"mqtt.topic", "mqtt.client"})
_NOTHING: Final = PublishProperties()

# A client's messages mostly differ only in their payloads, so their headers are encoded and decoded once.
_where_and_who: Final[dict[Headers, tuple[str, str]]] = {}


class Message(msgspec.Struct, frozen=True, gc=False):
    """`properties` have no alias, subscription identifiers or expiry: those belong to one connection or moment."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: PublishProperties = PublishProperties()
    expires_ms: int = NEVER
    publisher: str = ""
    """The sender's client id; empty where the message came through another door."""
    expires_in_s: int = 0
    """For a will, whose time begins when it is appended; 0 otherwise."""

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms != NEVER and self.expires_ms <= now_ms

    def seconds_left(self, now_ms: int) -> int | None:
        """The time left, as sent to subscribers: rounded up, so never 0."""
        return None if self.expires_ms == NEVER else max(1, -((now_ms - self.expires_ms) // 1000))


class Header(enum.StrEnum):
    TOPIC = "mqtt.topic"
    QOS = "mqtt.qos"
    RETAIN = "mqtt.retain"
    CLIENT = "mqtt.client"
    EXPIRES_AT = "mqtt.expires-at"
    EXPIRES_IN = "mqtt.expires-in"
    CONTENT_TYPE = "mqtt.content-type"
    RESPONSE_TOPIC = "mqtt.response-topic"
    CORRELATION_DATA = "mqtt.correlation-data"
    PAYLOAD_FORMAT = "mqtt.payload-format"


@lru_cache(_MOST_KEPT)
def _plain_headers(topic: str, publisher: str) -> Headers:
    where = (("mqtt.topic", topic.encode()),) if topic else ()
    return (*where, ("mqtt.client", publisher.encode())) if publisher else where


def to_record(message: Message, route: Route) -> LogMessage:
    topic, publisher = message.topic, message.publisher
    if (
        message.properties is NO_PUBLISH_PROPERTIES
        and message.qos == 1
        and not (message.retain or message.expires_ms or message.expires_in_s or route.headers)
        and len(topic) + len(publisher) <= _LONGEST_KEPT
    ):
        headers = _plain_headers("" if route.names_topic else topic, publisher)
        return LogMessage(route.key, message.payload, headers)
    return _to_record(message, route)


def _to_record(message: Message, route: Route) -> LogMessage:
    headers: list[tuple[str, bytes | None]] = []
    if not route.names_topic:
        headers.append(("mqtt.topic", message.topic.encode()))
    if message.qos != 1:
        headers.append(("mqtt.qos", b"%d" % message.qos))
    if message.retain:
        headers.append(("mqtt.retain", b"1"))
    if message.publisher:
        headers.append(("mqtt.client", message.publisher.encode()))
    if message.expires_ms != NEVER:
        headers.append(("mqtt.expires-at", b"%d" % message.expires_ms))
    if message.expires_in_s:
        headers.append(("mqtt.expires-in", b"%d" % message.expires_in_s))
    if message.properties != _NOTHING:
        headers += _property_headers(message.properties)
    return LogMessage(route.key, message.payload, (*route.headers, *headers))


def _property_headers(properties: PublishProperties) -> Headers:
    texts = (
        (Header.CONTENT_TYPE.value, properties.content_type),
        (Header.RESPONSE_TOPIC.value, properties.response_topic),
    )
    headers: list[tuple[str, bytes | None]] = [
        (name, text.encode()) for name, text in texts if text is not None
    ]
    if properties.correlation_data is not None:
        headers.append((Header.CORRELATION_DATA.value, properties.correlation_data))
    if properties.payload_format is not None:
        headers.append((Header.PAYLOAD_FORMAT.value, b"%d" % properties.payload_format))
    for name, value in properties.user_properties:
        headers.append((_ESCAPE + name if name.startswith(_OURS) else name, value.encode()))
    return tuple(headers)


def from_record(record: Record, log_topic: str, rules: Rules) -> Message:
    """Any record is a message. The rules fill in what the headers lack; headers that MQTT cannot carry are left out."""
    payload, headers = record.value or b"", record.headers
    if not headers:
        return Message(rules.mqtt_topic(log_topic, record.key), payload)
    known = _where_and_who.get(headers)
    if known is not None:
        topic, publisher = known
        return Message(topic or rules.mqtt_topic(log_topic, record.key), payload, publisher=publisher)
    ours: dict[str, bytes] = {}
    users: list[tuple[str, str]] = []
    for name, content in headers:
        if name.startswith(_OURS) and not name.startswith(_ESCAPE):
            ours.setdefault(name, content or b"")
        elif len(users) < MOST_USER_PROPERTIES:
            key, value = _text(name.removeprefix(_ESCAPE).encode()), _text(content or b"")
            if key is not None and value is not None:
                users.append((key, value))
    topic = _text(ours.get("mqtt.topic", b"")) or ""
    topic = topic if is_name(topic) else ""
    publisher = _text(ours.get("mqtt.client", b"")) or ""
    if not users and len(headers) <= len(_WHERE_AND_WHO) and ours.keys() <= _WHERE_AND_WHO:
        if sum(len(content or b"") for _, content in headers) <= _LONGEST_KEPT:
            if len(_where_and_who) >= _MOST_KEPT:
                _where_and_who.clear()
            _where_and_who[headers] = (topic, publisher)
        return Message(topic or rules.mqtt_topic(log_topic, record.key), payload, publisher=publisher)
    return Message(
        topic or rules.mqtt_topic(log_topic, record.key),
        payload,
        min(_number(ours.get("mqtt.qos", b"1"), 1), 2),
        "mqtt.retain" in ours,
        _properties(ours, tuple(users)),
        _expiry(ours, record),
        publisher,
    )


def _expiry(ours: dict[str, bytes], record: Record) -> int:
    seconds = _number(ours.get("mqtt.expires-in", b""), 0)
    return (
        record.timestamp_ms + seconds * 1000 if seconds else _number(ours.get("mqtt.expires-at", b""), NEVER)
    )


def _properties(ours: dict[str, bytes], users: UserProperties) -> PublishProperties:
    response = _text(ours[Header.RESPONSE_TOPIC]) if Header.RESPONSE_TOPIC in ours else None
    format_ = _number(ours.get(Header.PAYLOAD_FORMAT, b""), -1)
    correlation = ours.get(Header.CORRELATION_DATA)
    return PublishProperties(
        user_properties=users,
        payload_format=format_ if format_ in (0, 1) else None,
        content_type=_text(ours[Header.CONTENT_TYPE]) if Header.CONTENT_TYPE in ours else None,
        response_topic=response if response is not None and is_name(response) else None,
        correlation_data=correlation if correlation is None or len(correlation) <= _LONGEST_TEXT else None,
    )


def _text(raw: bytes) -> str | None:
    """None for text that MQTT does not allow."""
    if len(raw) > _LONGEST_TEXT or b"\0" in raw:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _number(raw: bytes, otherwise: int) -> int:
    return int(raw) if raw.isdigit() and len(raw) < 16 else otherwise


def to_retained(message: Message, route: Route) -> LogMessage:
    """The record that keeps the newest message of an MQTT topic; an empty payload deletes it."""
    if not message.payload:
        return LogMessage(message.topic.encode(), None)
    return replace(
        to_record(message, replace(route, headers=(), names_topic=True)), key=message.topic.encode()
    )
