"""The requests of a reader, encoded by hand: they run before each micro-batch, and a task must not import the schemas.

Every broker since Kafka 2.3 serves them, except fetches by topic id, which came with Kafka 2.8.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millstream.protocol.metadata import (
    FLEXIBLE_FROM,
    TOPIC_ID_FROM,
    BrokerAddress,
    PartitionMetadata,
    TopicMetadata,
)
from millstream.protocol.wire import (
    I8,
    I16,
    I32,
    I64,
    NULL_UUID,
    Reader,
    array_length,
    nullable_string,
    string,
)

API_VERSIONS = 18
FETCH, FETCH_VERSION, FETCH_BY_ID_VERSION = 1, 11, 13
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 5
METADATA, METADATA_VERSION, NEWEST_METADATA_VERSION = 3, 7, 12
SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION = 17, 1
SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION = 36, 1

LATEST, EARLIEST = -1, -2
NO_REPLICA = -1

_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_FETCH_PARTITION_BY_ID = struct.Struct(">iiqiqi")
_ONE, _NONE, _NO_TAGS = b"\2", b"\1", b"\0"
_API = struct.Struct(">hhh")


class ClusterInfo(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerAddress]
    topics: Sequence[TopicMetadata]


class FoundOffset(NamedTuple):
    topic: str
    partition: int
    error: int
    offset: int


class FetchReply(NamedTuple):
    """`records` is the position and size of the batches in the reply."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    records: tuple[int, int]


def read_api_versions(reply: memoryview) -> dict[int, tuple[int, int]]:
    """The oldest and newest version of every API, from a reply of version 0, which every broker sends."""
    reader = Reader(reply)
    reader.i16()
    return {
        key: (low, high) for key, low, high in (reader.unpack(_API) for _ in range(reader.array_length()))
    }


def metadata_request(topics: Sequence[str] | None, version: int = METADATA_VERSION) -> bytes:
    """Asks for the named topics, or all if None. Never creates a topic."""
    flexible = version >= FLEXIBLE_FROM
    body = array_length(-1 if topics is None else len(topics), flexible=flexible)
    for topic in topics or ():
        if version >= TOPIC_ID_FROM:
            body += NULL_UUID
        body += nullable_string(topic, flexible=flexible) + (_NO_TAGS if flexible else b"")
    # Flags: no topic creation; no authorized operations of the cluster (versions 8 to 10) or of topics (from 8 on).
    body += b"\0" + (b"\0" if 8 <= version <= 10 else b"") + (b"\0" if version >= 8 else b"")
    return body + (_NO_TAGS if flexible else b"")


def read_metadata(reply: memoryview, version: int = METADATA_VERSION) -> ClusterInfo:
    reader = Reader(reply, flexible=version >= FLEXIBLE_FROM)
    reader.i32()
    brokers: dict[int, BrokerAddress] = {}
    for _ in range(reader.array_length()):
        node_id = reader.i32()
        brokers[node_id] = BrokerAddress(node_id, reader.string(), reader.i32(), reader.nullable_string())
        reader.skip_tags()
    cluster_id, controller_id = reader.nullable_string() or "", reader.i32()
    topics = [_read_topic(reader, version) for _ in range(reader.array_length())]
    return ClusterInfo(cluster_id, controller_id, brokers, topics)


def _read_topic(reader: Reader, version: int) -> TopicMetadata:
    error, name = reader.i16(), reader.nullable_string()
    topic_id = reader.uuid() if version >= TOPIC_ID_FROM else NULL_UUID
    is_internal = bool(reader.i8())
    partitions = []
    for _ in range(reader.array_length()):
        code, index, leader, epoch = reader.i16(), reader.i32(), reader.i32(), reader.i32()
        replicas, in_sync, offline = _read_ids(reader), _read_ids(reader), _read_ids(reader)
        partitions.append(PartitionMetadata(code, index, leader, epoch, replicas, in_sync, offline))  # type: ignore[arg-type]
        reader.skip_tags()
    if version >= 8:
        reader.i32()
    reader.skip_tags()
    partitions.sort(key=lambda each: each.partition)
    return TopicMetadata(error, name, topic_id, is_internal, partitions)  # type: ignore[arg-type]


def _read_ids(reader: Reader) -> tuple[int, ...]:
    return tuple(reader.i32() for _ in range(max(reader.array_length(), 0)))


def list_offsets_request(wanted: Mapping[str, Mapping[int, int]], isolation_level: int) -> bytes:
    """`wanted`: a time in milliseconds, LATEST or EARLIEST for each partition of each topic."""
    body = I32.pack(NO_REPLICA) + I8.pack(isolation_level) + I32.pack(len(wanted))
    for topic, times in wanted.items():
        body += string(topic, flexible=False) + I32.pack(len(times))
        for partition, time in times.items():
            body += I32.pack(partition) + I32.pack(-1) + I64.pack(time)
    return body


def read_list_offsets(reply: memoryview) -> list[FoundOffset]:
    reader = Reader(reply)
    reader.i32()
    found = []
    for _ in range(reader.array_length()):
        topic = reader.string()
        for _ in range(reader.array_length()):
            partition, error = reader.i32(), reader.i16()
            reader.i64()
            found.append(FoundOffset(topic, partition, error, reader.i64()))
            reader.i32()
    return found


def fetch_request(
    topic: str | bytes,
    partition: int,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int = 1,
    isolation_level: int = 0,
) -> bytes:
    """Fetches one partition, without a fetch session. A fetch by topic id, which has another version than by name,
    cannot hit a recreated topic of the same name. Sends no rack, because a leader that redirects a reader to a
    follower sends no records."""
    head = _FETCH_HEAD.pack(NO_REPLICA, max_wait_ms, min_bytes, max_bytes, isolation_level, 0, -1)
    if isinstance(topic, bytes):
        place = _FETCH_PARTITION_BY_ID.pack(partition, -1, offset, -1, -1, max_bytes)
        return b"".join((head, _ONE, topic, _ONE, place, _NO_TAGS * 2, _NONE, _NONE, _NO_TAGS))
    place = _FETCH_PARTITION.pack(partition, -1, offset, -1, max_bytes)
    one, none = I32.pack(1), I32.pack(0)
    return b"".join((head, one, string(topic, flexible=False), one, place, none, I16.pack(0)))


def read_fetch(reply: memoryview, *, by_id: bool = False) -> FetchReply:
    reader = Reader(reply, flexible=by_id)
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or reader.array_length() < 1:
        return FetchReply(error, -1, -1, -1, (), (0, 0))
    if by_id:
        reader.uuid()
    else:
        reader.string()
    reader.array_length()
    reader.i32()
    error = reader.i16()
    high_watermark, last_stable, log_start = reader.i64(), reader.i64(), reader.i64()
    aborted = []
    for _ in range(max(reader.array_length(), 0)):
        aborted.append((reader.i64(), reader.i64()))
        reader.skip_tags()
    reader.i32()
    size = max(reader.uvarint() - 1 if by_id else reader.i32(), 0)
    return FetchReply(error, high_watermark, last_stable, log_start, tuple(aborted), (reader.position, size))


def sasl_handshake_request(mechanism: str) -> bytes:
    return string(mechanism, flexible=False)


def read_sasl_handshake(reply: memoryview) -> tuple[int, list[str]]:
    reader = Reader(reply)
    return reader.i16(), [reader.string() for _ in range(reader.array_length())]


def sasl_authenticate_request(token: bytes) -> bytes:
    return I32.pack(len(token)) + token


def read_sasl_authenticate(reply: memoryview) -> tuple[int, str, bytes]:
    reader = Reader(reply)
    error, message = reader.i16(), reader.nullable_string()
    return error, message or "", bytes(reader.nullable_bytes() or b"")
