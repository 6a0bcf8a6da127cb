"""Queues over MQTT: publish to `$queue/{name}[/{key}]`, consume `$queue/{name}[/{filter}]`, settle by `$ack`, `$nack`.

A queue is a topic of the log with a share group on it, so HTTP and Kafka consumers may share it. The group is the user
property `consumer-group` of SUBSCRIBE, or the client id; a filter makes it `group@filter`. A delivery carries
`message-id`, `group-id`, `queue`, `offset` and `x-source-topic`. A client of 5.0 settles it by publishing the first two
to `$queue/{name}/$ack`, `$nack` or `$reject` (with a `reason`). A client of 3.1.1 settles by PUBACK and PUBCOMP, and so
does one of 5.0 that subscribes with the user property `ack-mode: packet`.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from millstream.doors import Place
from millstream.doors.queues import Delivery as QueuedRecord
from millstream.doors.queues import SettlementKind
from millstream.mqtt.outgoing import Outgoing
from millstream.mqtt.record_form import from_record
from millstream.mqtt.rules import Route, Rules
from millstream.protocol.key_hash import murmur2
from millstream.protocol.mqtt.properties import UserProperties, write_user_property
from millstream.protocol.mqtt.topics import matches

PREFIX: Final = "$queue/"
_SETTLEMENTS: Final = {
    "$ack": SettlementKind.ACCEPT,
    "$nack": SettlementKind.RELEASE,
    "$reject": SettlementKind.REJECT,
}
_ENDINGS: Final = tuple(f"/{each}" for each in _SETTLEMENTS)
_SETTLEMENT_SLASHES: Final = 2
_POSITIVE: Final = 0x7FFFFFFF
_LONGEST_KEPT: Final = 256
_PARTITION_AND_OFFSET: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})(?::([0-9a-f]{8}))?")


class QueueName(NamedTuple):
    """`rest` is the key of a message or the filter of a consumer; may be empty."""

    name: str
    rest: str


class ToSettle(NamedTuple):
    group: str
    place: Place
    offset: int
    kind: SettlementKind
    reason: str
    incarnation: int = 0


def queue_of(topic: str) -> QueueName | None:
    """None for other topics. ValueError for an invalid queue name: a queue is named like a topic of the log."""
    if not topic.startswith(PREFIX):
        return None
    name, _, rest = topic[len(PREFIX) :].partition("/")
    if not name or name.startswith("__") or "+" in name or "#" in name:
        raise ValueError(f"{name!r} is not the name of a queue")
    return QueueName(name, rest)


def route_of(queue: QueueName) -> Route:
    """The route of a message for the queue: messages with the same key go to the same partition."""
    key = queue.rest.encode()
    return Route(queue.name, key, murmur2(key) & _POSITIVE, (), names_topic=False)


def is_settlement(topic: str) -> bool:
    return topic.endswith(_ENDINGS) and topic.startswith(PREFIX) and topic.count("/") == _SETTLEMENT_SLASHES


def settlement_of(topic: str, properties: UserProperties) -> ToSettle | None:
    """What a message to `$ack`, `$nack` or `$reject` settles; None for other topics. ValueError if that is missing."""
    if not is_settlement(topic):
        return None
    queue = queue_of(topic)
    assert queue is not None
    kind = _SETTLEMENTS[queue.rest]
    given = dict(properties)
    name, _, numbers = given.get("message-id", "").partition(":")
    place = _PARTITION_AND_OFFSET.fullmatch(numbers)
    group = given.get("group-id", "")
    if name != queue.name or place is None or not group:
        raise ValueError("settling needs the user properties message-id and group-id of the delivery")
    incarnation = int(place[3] or "0", 16)
    return ToSettle(
        group, Place(name, int(place[1])), int(place[2]), kind, given.get("reason", ""), incarnation
    )


def group_of(queue: QueueName, properties: UserProperties, client_id: str) -> str:
    group = dict(properties).get("consumer-group") or client_id
    return f"{group}@{queue.rest}" if queue.rest else group


class Deliveries:
    """Makes deliveries of a queue: messages with user properties that identify them for settling.

    The properties are encoded here, the parts common to a partition only once.
    """

    def __init__(self, queue: QueueName, group: str, rules: Rules, place: Place) -> None:
        self._queue = queue
        self._rules = rules
        self._place = place
        self._id = f"{place.topic}:{place.partition}:".encode()
        self._same = write_user_property("group-id", group) + write_user_property("queue", queue.name)

    def outgoing(self, queued: QueuedRecord) -> Outgoing | None:
        """None if the consumer's filter does not match."""
        record = queued.record
        message = from_record(record, self._place.topic, self._rules)
        own = message.topic
        if message.retain or not own.startswith(PREFIX):
            message = replace(message, topic=self._topic(own, record.key or b""), retain=False)
        if self._queue.rest:
            _, _, rest = message.topic[len(PREFIX) :].partition("/")
            if not rest or not matches(self._queue.rest, rest):
                return None
        return Outgoing(message, self._place, record.offset, self._delivery_properties(queued, own))

    def _topic(self, own: str, key: bytes) -> str:
        if own.startswith(PREFIX):
            return own
        text = key.decode("utf-8", "replace")
        return f"{PREFIX}{self._queue.name}/{text}" if text else f"{PREFIX}{self._queue.name}"

    def _delivery_properties(self, queued: QueuedRecord, own: str) -> bytes:
        offset = b"%d" % queued.record.offset
        size = len(offset)
        number = b"%b:%08x" % (offset, queued.incarnation) if queued.incarnation else offset
        return b"".join(
            (
                _MESSAGE_ID,
                (len(self._id) + len(number)).to_bytes(2, "big"),
                self._id,
                number,
                self._same,
                _OFFSET,
                size.to_bytes(2, "big"),
                offset,
                _COUNTS.get(queued.delivery_count)
                or write_user_property("delivery-count", str(queued.delivery_count)),
                _kept_source(own) if len(own) <= _LONGEST_KEPT else _source(own),
            )
        )


def _source(topic: str) -> bytes:
    return write_user_property("x-source-topic", topic)


_kept_source = lru_cache(4_096)(_source)
# A user property without its value and the value's length.
_MESSAGE_ID: Final = write_user_property("message-id", "")[:-2]
_OFFSET: Final = write_user_property("offset", "")[:-2]
_COUNTS: Final = {count: write_user_property("delivery-count", str(count)) for count in range(1, 6)}
