"""The bytes that consumers of the classic protocol exchange: subscriptions and assignments.

The coordinator passes them on without decoding, except where it needs the topics: offset retention,
OffsetDelete, and classic members of a KIP-848 group. Written by hand, because importing kio takes a quarter
of a second.
"""

import msgspec

from millstream.protocol.layout import INT32, STRING, array, mapped, row
from millstream.protocol.wire import I16, I32, Reader, nullable_string

PROTOCOL_TYPE = "consumer"

TopicPartitions = dict[str, frozenset[int]]

_HIGHEST_VERSION = 3

_NAMES = array(STRING)(0, False)
_PARTITIONS = mapped(
    array(row(STRING, array(INT32))),
    lambda partitions: [(topic, sorted(partitions[topic])) for topic in sorted(partitions)],
    lambda rows: {topic: frozenset(held) for topic, held in rows},
)(0, False)
_NO_USER_DATA = I32.pack(-1)


class Subscription(msgspec.Struct, frozen=True):
    topics: frozenset[str]
    owned: TopicPartitions = msgspec.field(default_factory=dict)
    generation: int = -1
    rack_id: str | None = None
    version: int = 0


def decode_subscription(data: bytes) -> Subscription:
    """MalformedRequest for anything that is none."""
    reader = Reader(memoryview(data))
    version = reader.i16()
    topics = frozenset(_NAMES.read(reader))
    reader.nullable_bytes()
    owned: TopicPartitions = {}
    generation = -1
    rack_id = None
    # Some clients announce a version but leave out its newer fields.
    if version >= 1 and reader.position < len(data):
        owned = _PARTITIONS.read(reader)
    if version >= 2 and reader.position < len(data):
        generation = reader.i32()
    if version >= 3 and reader.position < len(data):
        rack_id = reader.nullable_string()
    return Subscription(topics, owned, generation, rack_id, min(version, _HIGHEST_VERSION))


def decode_topics(data: bytes) -> tuple[frozenset[str], int]:
    """The topics of a subscription, and where their list ends; it begins after two bytes."""
    reader = Reader(memoryview(data), I16.size)
    topics = frozenset(_NAMES.read(reader))
    return topics, reader.position


def encode_subscription(subscription: Subscription) -> bytes:
    version = subscription.version
    written = I16.pack(version) + _NAMES.write(sorted(subscription.topics)) + _NO_USER_DATA
    if version >= 1:
        written += _PARTITIONS.write(subscription.owned)
    if version >= 2:
        written += I32.pack(subscription.generation)
    if version >= 3:
        written += nullable_string(subscription.rack_id, flexible=False)
    return written


def decode_assignment(data: bytes) -> TopicPartitions:
    """MalformedRequest for anything that is none."""
    if not data:
        return {}
    reader = Reader(memoryview(data))
    reader.i16()
    partitions: TopicPartitions = _PARTITIONS.read(reader)
    return partitions


def encode_assignment(partitions: TopicPartitions, version: int) -> bytes:
    return I16.pack(version) + _PARTITIONS.write(partitions) + I32.pack(0)
