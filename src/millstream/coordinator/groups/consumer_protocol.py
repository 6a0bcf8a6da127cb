"""The bytes that consumers of the classic protocol hand each other: subscriptions and assignments.

The coordinator passes them on unopened, except where it must know the topics: offset retention,
OffsetDelete, and classic members of a KIP-848 group. Written by hand: importing kio costs a quarter of a
second.
"""

import msgspec

from millstream.coordinator.wire import Reader, Writer

PROTOCOL_TYPE = "consumer"

TopicPartitions = dict[str, frozenset[int]]

_HIGHEST_VERSION = 3


class Subscription(msgspec.Struct, frozen=True):
    topics: frozenset[str]
    owned: TopicPartitions = msgspec.field(default_factory=dict)
    generation: int = -1
    rack_id: str | None = None
    version: int = 0


def decode_subscription(data: bytes) -> Subscription:
    reader = Reader(data)
    version = reader.int16()
    topics = frozenset(reader.array(reader.string))
    reader.nullable_data()
    owned: TopicPartitions = {}
    generation = -1
    rack_id = None
    # Some clients announce a version but leave out its newer fields.
    if version >= 1 and not reader.exhausted:
        owned = dict(reader.array(lambda: (reader.string(), frozenset(reader.array(reader.int32)))))
    if version >= 2 and not reader.exhausted:
        generation = reader.int32()
    if version >= 3 and not reader.exhausted:
        rack_id = reader.nullable_string()
    return Subscription(topics, owned, generation, rack_id, min(version, _HIGHEST_VERSION))


def encode_subscription(subscription: Subscription) -> bytes:
    writer = Writer()
    writer.int16(subscription.version)
    writer.array(sorted(subscription.topics), writer.string)
    writer.data(None)
    if subscription.version >= 1:
        _write_partitions(writer, subscription.owned)
    if subscription.version >= 2:
        writer.int32(subscription.generation)
    if subscription.version >= 3:
        writer.string(subscription.rack_id)
    return writer.finish()


def decode_assignment(data: bytes) -> TopicPartitions:
    if not data:
        return {}
    reader = Reader(data)
    reader.int16()
    return dict(reader.array(lambda: (reader.string(), frozenset(reader.array(reader.int32)))))


def encode_assignment(partitions: TopicPartitions, version: int) -> bytes:
    writer = Writer()
    writer.int16(version)
    _write_partitions(writer, partitions)
    writer.data(b"")
    return writer.finish()


def _write_partitions(writer: Writer, partitions: TopicPartitions) -> None:
    def write_topic(topic: str) -> None:
        writer.string(topic)
        writer.array(sorted(partitions[topic]), writer.int32)

    writer.array(sorted(partitions), write_topic)
