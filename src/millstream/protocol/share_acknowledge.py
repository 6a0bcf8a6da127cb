"""ShareAcknowledge requests and replies, versions 1 and 2: consumers that acknowledge one by one send many of them."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
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
_ACCEPT = (1,)
# A longer group and member are read each time, and not kept.
_KEPT_NAMES_BYTES = 1_024
# A request with its size before it: API key, version, correlation id; then the length of the client id.
_VERSION_AT, _NUMBER_AT, _HEADER_BYTES = 6, 8, 12
_VERSION_AND_ID = struct.Struct(">hih")
# In the fixed end of the usual request: the bytes between epoch and offsets, and those after the offsets.
_PLACE_BYTES, _KIND_BYTES = 24, 6
MOST_IN_SERIES = 200
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


class AcknowledgeSeries(NamedTuple):
    """Requests that accept ranges of one partition's records, and differ in nothing else.

    `numbers` are their correlation ids, `epochs` those of the session, `firsts` and `lasts` the offsets.
    """

    version: int
    client_id: bytes
    request: AcknowledgeRequest
    """The first request."""
    numbers: tuple[int, ...]
    epochs: tuple[int, ...]
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]


class PartitionOutcome(NamedTuple):
    """`leader`: id and epoch, if the client must ask another node."""

    partition_index: int
    error: int = 0
    message: str | None = None
    leader: tuple[int, int] = (-1, -1)


Endpoint = tuple[int, str, int, str | None]
"""A node in a reply: id, host, port and rack."""


class AcknowledgeAnswer(NamedTuple):
    error: int = 0
    message: str | None = None
    lock_ms: int = 0
    topics: Sequence[tuple[UUID, Sequence[PartitionOutcome]]] = ()
    endpoints: Sequence[Endpoint] = ()


@lru_cache(maxsize=4096)
def topic_id(data: bytes) -> UUID:
    return UUID(bytes=data)


def decode_share_acknowledge(buffer: memoryview, position: int, version: int) -> AcknowledgeRequest:
    return _one_range(buffer, position, version) or _any(buffer, position, version)


def _one_range(buffer: memoryview, position: int, version: int) -> AcknowledgeRequest | None:
    """The usual request: one type for one range of one partition, and no tags. Its end has a fixed form."""
    at = len(buffer) - _ONE_RANGE.size
    if version < RENEW_FROM or at <= position:
        return None
    found = _ONE_RANGE.unpack_from(buffer, at)
    epoch, renews, topics, topic, partitions, index, ranges, first, last, types, kind, tags = found
    if (topics, partitions, ranges, types, tags) != _ONE_OF_EACH:
        return None
    if at - position > _KEPT_NAMES_BYTES:
        return None
    names = _names(bytes(buffer[position:at]))
    if names is None:
        return None
    partition = AckPartition(index, [AckBatch(first, last, (kind,))])
    return AcknowledgeRequest(*names, epoch, renews != 0, [AckTopic(topic_id(topic), [partition])])


@lru_cache(maxsize=4096)
def _names(data: bytes) -> tuple[str | None, str | None] | None:
    """The group and member of a request; None if anything follows them."""
    reader = Reader(memoryview(data), flexible=True)
    try:
        names = reader.nullable_string(), reader.nullable_string()
    except MalformedRequest:
        return None
    return names if reader.position == len(data) else None


def read_series(data: memoryview, size: int) -> AcknowledgeSeries | None:
    """A series of requests of `size` bytes each, at the start of `data`; None unless the first two are a series.

    A consumer that acknowledges one by one and does not wait for each reply sends many that differ in three numbers.
    """
    version, _, id_size = _VERSION_AND_ID.unpack_from(data, _VERSION_AT)
    body = _HEADER_BYTES + 2 + max(id_size, 0) + 1
    tail = 4 + size - _ONE_RANGE.size
    if id_size < -1 or tail <= body or data[body - 1] or version != RENEW_FROM:
        return None
    most = min(len(data) // (4 + size), MOST_IN_SERIES)
    request = _one_range(data[: 4 + size], body, RENEW_FROM)
    if request is None or request.is_renew_ack or most < 2:
        return None
    batch = request.topics[0].partitions[0].acknowledgement_batches[0]
    if batch.acknowledge_types != _ACCEPT:
        return None
    like, found = None, []
    for row in _row(tail).iter_unpack(data[: most * (4 + size)]):
        like = like or _same(row)
        if _same(row) != like or not 0 <= row[5] <= row[6]:
            break
        found.append((row[1], row[3], row[5], row[6]))
    if len(found) < 2:
        return None
    client_id = bytes(data[_HEADER_BYTES + 2 : body - 1])
    return AcknowledgeSeries(RENEW_FROM, client_id, request, *zip(*found, strict=True))


# The columns that are equal in all requests of a series.
_same = itemgetter(0, 2, 4, 7)


@lru_cache(maxsize=256)
def _row(tail: int) -> struct.Struct:
    """A request whose last part begins at `tail`: head, number, names, epoch, place, two offsets, kind."""
    return struct.Struct(f">{_NUMBER_AT}si{tail - _HEADER_BYTES}si{_PLACE_BYTES}sqq{_KIND_BYTES}s")


def _any(buffer: memoryview, position: int, version: int) -> AcknowledgeRequest:
    reader = Reader(buffer, position, flexible=True, elements=_MOST_ELEMENTS)
    group_id, member_id = reader.nullable_string(), reader.nullable_string()
    epoch = reader.i32()
    renews = version >= RENEW_FROM and reader.i8() != 0
    topics = [read_topic(reader) for _ in range(present(reader.array_length()))]
    reader.skip_tags()
    if reader.position != len(buffer):
        raise MalformedRequest(f"share_acknowledge leaves {len(buffer) - reader.position} bytes unread")
    return AcknowledgeRequest(group_id, member_id, epoch, renews, topics)


def read_topic(reader: Reader) -> AckTopic:
    topic = topic_id(reader.uuid())
    partitions = []
    for _ in range(present(reader.array_length())):
        index = reader.i32()
        batches = []
        for _ in range(present(reader.array_length())):
            first, last = reader.unpack(_RANGE)
            types = reader.raw(present(reader.array_length()))
            batches.append(AckBatch(first, last, tuple(types.cast("b"))))
            reader.skip_tags()
        reader.skip_tags()
        partitions.append(AckPartition(index, batches))
    reader.skip_tags()
    return AckTopic(topic, partitions)


def present(count: int) -> int:
    if count < 0:
        raise MalformedRequest("an array that must be there is null")
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
    parts += (encode_endpoints(answer.endpoints), b"\0")
    return b"".join(parts)


def encode_endpoints(endpoints: Sequence[Endpoint]) -> bytes:
    parts = [array_length(len(endpoints), flexible=True)]
    for node_id, host, port, rack in endpoints:
        parts += (I32.pack(node_id), string(host, flexible=True), I32.pack(port))
        parts += (nullable_string(rack, flexible=True), b"\0")
    return b"".join(parts)


@lru_cache(maxsize=1024)
def settled_reply(version: int, topic_id: UUID, index: int, lock_ms: int, throttle_ms: int) -> bytes:
    """The usual reply: one partition, without errors."""
    answer = AcknowledgeAnswer(lock_ms=lock_ms, topics=((topic_id, (PartitionOutcome(index),)),))
    return encode_share_acknowledge_reply(version, answer, throttle_ms)


def _outcome(each: PartitionOutcome) -> bytes:
    if each.message is None:
        return _DONE.pack(each.partition_index, each.error, 0, *each.leader, 0, 0)
    head = _OUTCOME.pack(each.partition_index, each.error)
    return head + nullable_string(each.message, flexible=True) + _LEADER.pack(*each.leader, 0, 0)
