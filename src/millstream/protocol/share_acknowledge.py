"""ShareAcknowledge requests and replies, versions 1 and 2: consumers that acknowledge one by one send many of them."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from millstream.protocol.limits import LIMITS
from millstream.protocol.wire import I32, MalformedRequest, Reader, array_length, nullable_string, string

RENEW_FROM = 2
_MOST_ELEMENTS = LIMITS["share_acknowledge"].elements
_RANGE = struct.Struct(">qq")
_HEAD = struct.Struct(">ih")
# Epoch and renewal; topics, the id; partitions, the index; ranges, from and to; types, one of them; four ends of tags.
_ONE_RANGE = struct.Struct(">ibB16sBiBqqBbI")
_ONE_OF_EACH = (2, 2, 2, 2, 0)
# Index, error code, a null message, the leader and its epoch, and the ends of both structures.
_DONE = struct.Struct(">ihBiiBB")
_OUTCOME = struct.Struct(">ih")
_LEADER = struct.Struct(">iiBB")


class AckBatch(NamedTuple):
    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


class AckPartition(NamedTuple):
    partition_index: int
    acknowledgement_batches: list[AckBatch]


class AckTopic(NamedTuple):
    topic_id: UUID
    partitions: list[AckPartition]


class AcknowledgeRequest(NamedTuple):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[AckTopic]


class PartitionOutcome(NamedTuple):
    """`leader`: its id and epoch, where the client is to ask it."""

    partition_index: int
    error: int = 0
    message: str | None = None
    leader: tuple[int, int] = (-1, -1)


class AcknowledgeAnswer(NamedTuple):
    error: int = 0
    message: str | None = None
    lock_ms: int = 0
    topics: Sequence[tuple[UUID, Sequence[PartitionOutcome]]] = ()
    endpoints: Sequence[tuple[int, str, int, str | None]] = ()


@lru_cache(maxsize=4096)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


def decode_share_acknowledge(buffer: memoryview, position: int, version: int) -> AcknowledgeRequest:
    return _one_range(buffer, position, version) or _any(buffer, position, version)


def _one_range(buffer: memoryview, position: int, version: int) -> AcknowledgeRequest | None:
    """The usual request: one type for one range of one partition, and no tags. Its end has a fixed form."""
    at = len(buffer) - _ONE_RANGE.size
    if version < RENEW_FROM or at <= position:
        return None
    found = _ONE_RANGE.unpack_from(buffer, at)
    epoch, renews, topics, topic_id, partitions, index, ranges, first, last, types, kind, tags = found
    if (topics, partitions, ranges, types, tags) != _ONE_OF_EACH:
        return None
    names = _names(bytes(buffer[position:at]))
    if names is None:
        return None
    partition = AckPartition(index, [AckBatch(first, last, (kind,))])
    return AcknowledgeRequest(*names, epoch, renews != 0, [AckTopic(_uuid(topic_id), [partition])])


@lru_cache(maxsize=4096)
def _names(data: bytes) -> tuple[str | None, str | None] | None:
    """Group and member, which a client says with every request; None where something else follows."""
    reader = Reader(memoryview(data), flexible=True)
    try:
        names = reader.nullable_string(), reader.nullable_string()
    except MalformedRequest:
        return None
    return names if reader.position == len(data) else None


def _any(buffer: memoryview, position: int, version: int) -> AcknowledgeRequest:
    reader = Reader(buffer, position, flexible=True, elements=_MOST_ELEMENTS)
    group_id, member_id = reader.nullable_string(), reader.nullable_string()
    epoch = reader.i32()
    renews = version >= RENEW_FROM and reader.i8() != 0
    topics = [_topic(reader) for _ in range(_present(reader.array_length()))]
    reader.skip_tags()
    if reader.position != len(buffer):
        raise MalformedRequest(f"share_acknowledge leaves {len(buffer) - reader.position} bytes unread")
    return AcknowledgeRequest(group_id, member_id, epoch, renews, topics)


def _topic(reader: Reader) -> AckTopic:
    topic_id = _uuid(bytes(reader.uuid()))
    partitions = []
    for _ in range(_present(reader.array_length())):
        index = reader.i32()
        batches = []
        for _ in range(_present(reader.array_length())):
            first, last = reader.unpack(_RANGE)
            types = reader.raw(_present(reader.array_length()))
            batches.append(AckBatch(first, last, tuple(types.cast("b"))))
            reader.skip_tags()
        reader.skip_tags()
        partitions.append(AckPartition(index, batches))
    reader.skip_tags()
    return AckTopic(topic_id, partitions)


def _present(count: int) -> int:
    if count < 0:
        raise MalformedRequest("an array of ShareAcknowledge is null")
    return count


def encode_share_acknowledge_reply(version: int, answer: AcknowledgeAnswer, throttle_ms: int) -> bytes:
    parts = [_HEAD.pack(throttle_ms, answer.error), nullable_string(answer.message, flexible=True)]
    if version >= RENEW_FROM:
        parts.append(I32.pack(answer.lock_ms))
    parts.append(array_length(len(answer.topics), flexible=True))
    for topic_id, partitions in answer.topics:
        parts += (topic_id.bytes, array_length(len(partitions), flexible=True))
        parts += map(_outcome, partitions)
        parts.append(b"\0")
    parts.append(array_length(len(answer.endpoints), flexible=True))
    for node_id, host, port, rack in answer.endpoints:
        parts += (I32.pack(node_id), string(host, flexible=True), I32.pack(port))
        parts += (nullable_string(rack, flexible=True), b"\0")
    parts.append(b"\0")
    return b"".join(parts)


@lru_cache(maxsize=1024)
def settled_reply(version: int, topic_id: UUID, index: int, lock_ms: int, throttle_ms: int) -> bytes:
    """The usual reply: all that was said of one partition is done."""
    answer = AcknowledgeAnswer(lock_ms=lock_ms, topics=((topic_id, (PartitionOutcome(index),)),))
    return encode_share_acknowledge_reply(version, answer, throttle_ms)


def _outcome(each: PartitionOutcome) -> bytes:
    if each.message is None:
        return _DONE.pack(each.partition_index, each.error, 0, *each.leader, 0, 0)
    head = _OUTCOME.pack(each.partition_index, each.error)
    return head + nullable_string(each.message, flexible=True) + _LEADER.pack(*each.leader, 0, 0)
