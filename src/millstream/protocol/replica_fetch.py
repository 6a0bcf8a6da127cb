"""The follower's side of Fetch, in one version: encodes requests, decodes replies. Server: `protocol.fetch`."""

import struct
from collections.abc import Iterable

import msgspec

from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import DAMAGED_TAG, FetchedPartition, FetchPartition
from millstream.protocol.wire import I32, Reader, string, uvarint

VERSION = 17
_LIMITS = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqi")
_NO_TAGS = b"\0"
_DAMAGED = b"\x01" + uvarint(DAMAGED_TAG) + b"\0"
_REPLICA = struct.Struct(">iqx")
_REPLY_HEAD = struct.Struct(">xihi")
_REPLY_PARTITION = struct.Struct(">ihqqq")

Key = tuple[bytes, int]


class ReplicaFetchRequest(msgspec.Struct, frozen=True):
    """Partitions by topic id and index."""

    replica_id: int
    replica_epoch: int
    session_id: int
    session_epoch: int
    max_wait_ms: int
    max_bytes: int
    partitions: dict[Key, FetchPartition]
    forgotten: tuple[Key, ...] = ()
    rack_id: str = ""
    min_bytes: int = 1
    isolation_level: int = 0


class ReplicaFetchReply(msgspec.Struct, frozen=True):
    error: ErrorCode
    session_id: int
    partitions: list[FetchedPartition]


def encode_body(request: ReplicaFetchRequest) -> bytes:
    out = bytearray()
    out += _LIMITS.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    topics = _by_topic(request.partitions)
    out += uvarint(len(topics) + 1)
    for topic_id, indexes in topics.items():
        out += topic_id + uvarint(len(indexes) + 1)
        for index in indexes:
            *fields, is_damaged = request.partitions[topic_id, index]
            out += _PARTITION.pack(*fields) + (_DAMAGED if is_damaged else _NO_TAGS)
        out += b"\0"
    forgotten = _by_topic(request.forgotten)
    out += uvarint(len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        out += topic_id + uvarint(len(indexes) + 1) + b"".join(map(I32.pack, indexes)) + b"\0"
    out += string(request.rack_id, flexible=True)
    if request.replica_id < 0:
        return bytes(out + b"\0")
    state = _REPLICA.pack(request.replica_id, request.replica_epoch)
    return bytes(out + b"\x01\x01" + uvarint(len(state)) + state)


def _by_topic(keys: Iterable[Key]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return topics


def decode_reply(body: memoryview) -> ReplicaFetchReply:
    """`body` begins after the correlation id; records stay views of it. MalformedRequest for invalid bytes."""
    reader = Reader(body, flexible=True)
    _, error, session_id = reader.unpack(_REPLY_HEAD)
    partitions: list[FetchedPartition] = []
    for _ in range(reader.array_length()):
        topic_id = reader.uuid()
        partitions += [_decode_partition(reader, topic_id) for _ in range(reader.array_length())]
        reader.skip_tags()
    reader.skip_tags()
    return ReplicaFetchReply(_code(error), session_id, partitions)


def _decode_partition(reader: Reader, topic_id: bytes) -> FetchedPartition:
    index, error, high_watermark, last_stable_offset, log_start_offset = reader.unpack(_REPLY_PARTITION)
    for _ in range(reader.array_length()):
        reader.i64(), reader.i64()
        reader.skip_tags()
    preferred = reader.i32()
    records = reader.nullable_bytes()
    found = FetchedPartition(
        topic_id,
        index,
        _code(error),
        high_watermark,
        last_stable_offset,
        log_start_offset,
        b"" if records is None else records,
        preferred_read_replica=preferred,
    )
    tags = reader.tags()
    if 0 in tags:
        tag = Reader(tags[0])
        found.diverging_epoch = (tag.i32(), tag.i64())
    if 1 in tags:
        tag = Reader(tags[1])
        found.leader_id, found.leader_epoch = tag.i32(), tag.i32()
    return found


def _code(number: int) -> ErrorCode:
    if number == 0:
        return ErrorCode.NONE
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
