"""Fetch requests and replies, versions 4 to 18. Record batches go into the reply as buffers, never copied."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from millstream.protocol.errors import ErrorCode
from millstream.protocol.limits import LIMITS
from millstream.protocol.wire import I16, I32, I64, Reader, array_length, string, uvarint

_MOST_ELEMENTS = LIMITS["fetch"].elements
FLEXIBLE_FROM = 12
TOPIC_ID_FROM = 13
ERRORS_FROM = 7
"""The first version whose reply has an error code for the whole request."""

# In a request: max_wait_ms, min_bytes, max_bytes and isolation level; the session; a partition from version 12 on.
_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION = struct.Struct(">iiqiqi")
# The same before version 12, from version 9 on: without the last fetched epoch.
_OLD_PARTITION = struct.Struct(">iiqqi")
# Our own tag in a follower's partition: far from Kafka's, which count up from zero.
DAMAGED_TAG = 10_000
# In a reply.
_PARTITION_HEAD = struct.Struct(">ihqqq")
# Of aborted transactions: an empty array.
_NO_TRANSACTIONS, _NO_TRANSACTIONS_FLEXIBLE = b"\0\0\0\0", b"\1"


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    is_damaged: bool = False
    """Between nodes: the follower needs records to repair its damaged log."""


class FetchTopic(NamedTuple):
    """`topic` is a name, or the 16 bytes of a topic id from version 13 on."""

    topic: str | bytes
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[tuple[str | bytes, list[int]]]
    rack_id: str
    replica_epoch: int = -1
    """The follower's broker epoch, from version 15 on."""


class FetchedPartition(msgspec.Struct):
    topic: str | bytes
    index: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: memoryview | bytes = b""
    diverging_epoch: tuple[int, int] | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    preferred_read_replica: int = -1


class FetchAnswer(NamedTuple):
    partitions: Sequence[FetchedPartition] = ()
    session_id: int = 0
    error: ErrorCode = ErrorCode.NONE


def decode_fetch(buffer: memoryview, position: int, version: int) -> FetchRequest:
    reader = Reader(buffer, position, flexible=version >= FLEXIBLE_FROM, elements=_MOST_ELEMENTS)
    replica_id, replica_epoch = reader.i32() if version <= 14 else -1, -1
    max_wait_ms, min_bytes, max_bytes, isolation_level = reader.unpack(_LIMITS)
    session_id, session_epoch = reader.unpack(_SESSION) if version >= 7 else (0, -1)
    topics = [_decode_topic(reader, version) for _ in range(reader.array_length())]
    forgotten: list[tuple[str | bytes, list[int]]] = []
    if version >= 7:
        for _ in range(reader.array_length()):
            topic = reader.uuid() if version >= TOPIC_ID_FROM else reader.string()
            forgotten.append((topic, [reader.i32() for _ in range(reader.array_length())]))
            reader.skip_tags()
    rack_id = reader.string() if version >= 11 else ""
    tags = reader.tags()
    if version >= 15 and 1 in tags:
        state = Reader(tags[1])
        replica_id, replica_epoch = state.i32(), state.i64()
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_epoch,
    )


def _decode_topic(reader: Reader, version: int) -> FetchTopic:
    topic = reader.uuid() if version >= TOPIC_ID_FROM else reader.string()
    partitions = []
    for _ in range(reader.array_length()):
        if version < 12:
            partitions.append(_old_partition(reader, version))
            continue
        fields = reader.unpack(_PARTITION)
        is_damaged = not reader.has_no_tags() and DAMAGED_TAG in reader.tags()
        partitions.append(FetchPartition._make((*fields, is_damaged)))
    reader.skip_tags()
    return FetchTopic(topic, partitions)


def _old_partition(reader: Reader, version: int) -> FetchPartition:
    if version >= 9:
        index, current_leader_epoch, fetch_offset, log_start_offset, max_bytes = reader.unpack(_OLD_PARTITION)
        return FetchPartition(index, current_leader_epoch, fetch_offset, -1, log_start_offset, max_bytes)
    index, fetch_offset = reader.i32(), reader.i64()
    log_start_offset = reader.i64() if version >= 5 else -1
    return FetchPartition(index, -1, fetch_offset, -1, log_start_offset, reader.i32())


def encode_fetch_reply(
    version: int,
    partitions: Sequence[FetchedPartition],
    *,
    error: ErrorCode = ErrorCode.NONE,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> list[bytes | memoryview]:
    """The reply's body as buffers to be written one after the other."""
    flexible = version >= FLEXIBLE_FROM
    parts: list[bytes | memoryview] = []
    out = bytearray(I32.pack(throttle_ms))
    if version >= 7:
        out += I16.pack(error)
        out += I32.pack(session_id)
    groups = _by_topic(partitions) if len(partitions) != 1 else [partitions]
    out += array_length(len(groups), flexible=flexible)
    for group in groups:
        topic = group[0].topic
        out += topic if isinstance(topic, bytes) else string(topic, flexible=flexible)
        out += array_length(len(group), flexible=flexible)
        for partition in group:
            out = _encode_partition(parts, out, partition, version, flexible)
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    if out:
        parts.append(bytes(out))
    return parts


def _by_topic(partitions: Sequence[FetchedPartition]) -> Sequence[Sequence[FetchedPartition]]:
    groups: list[list[FetchedPartition]] = []
    for partition in partitions:
        if not groups or groups[-1][0].topic != partition.topic:
            groups.append([])
        groups[-1].append(partition)
    return groups


def _encode_partition(
    parts: list[bytes | memoryview], out: bytearray, partition: FetchedPartition, version: int, flexible: bool
) -> bytearray:
    out += (
        _PARTITION_HEAD.pack(
            partition.index,
            partition.error,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
        if version >= 5
        else _PARTITION_HEAD.pack(
            partition.index, partition.error, partition.high_watermark, partition.last_stable_offset, 0
        )[:-8]
    )
    out += _NO_TRANSACTIONS_FLEXIBLE if flexible else _NO_TRANSACTIONS
    if version >= 11:
        out += I32.pack(partition.preferred_read_replica)
    size = len(partition.records)
    out += uvarint(size + 1) if flexible else I32.pack(size)
    if size:
        parts.append(bytes(out))
        parts.append(partition.records)
        out = bytearray()
    if flexible:
        out += _partition_tags(partition)
    return out


def _partition_tags(partition: FetchedPartition) -> bytes:
    count = 0
    tags = b""
    if partition.diverging_epoch is not None:
        epoch, end_offset = partition.diverging_epoch
        count += 1
        tags += b"\x00\x0d" + I32.pack(epoch) + I64.pack(end_offset) + b"\0"
    if partition.leader_id >= 0:
        count += 1
        tags += b"\x01\x09" + I32.pack(partition.leader_id) + I32.pack(partition.leader_epoch) + b"\0"
    return bytes((count,)) + tags
