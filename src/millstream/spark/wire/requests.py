"""The requests of a reader, at the newest versions that are not flexible: every broker since Kafka 2.3 serves them.

By hand, because these run before each micro-batch and a task must not import a schema library to fetch.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.protocol.wire import I8, I16, I32, I64, Reader, string

FETCH, FETCH_VERSION = 1, 11
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 5
METADATA, METADATA_VERSION = 3, 7
SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION = 17, 1
SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION = 36, 1

LATEST, EARLIEST = -1, -2
NO_REPLICA = -1

_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    error: int
    leader: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    error: int
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    brokers: Mapping[int, tuple[str, int]]
    topics: tuple[TopicInfo, ...]


@dataclass(frozen=True, slots=True)
class FoundOffset:
    topic: str
    partition: int
    error: int
    offset: int


@dataclass(frozen=True, slots=True)
class FetchReply:
    """`records` is where the batches lie in the reply: position and size."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    records: tuple[int, int]


def header(api: int, version: int, correlation_id: int, client_id: str) -> bytes:
    return I16.pack(api) + I16.pack(version) + I32.pack(correlation_id) + string(client_id, flexible=False)


def metadata_request(topics: Sequence[str] | None) -> bytes:
    """None asks for all topics. Asking never creates one."""
    body = I32.pack(-1) if topics is None else I32.pack(len(topics))
    for topic in topics or ():
        body += string(topic, flexible=False)
    return body + b"\0"


def read_metadata(reply: memoryview) -> ClusterInfo:
    reader = Reader(reply)
    reader.i32()
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(reader.array_length()):
        node_id = reader.i32()
        brokers[node_id] = (reader.string(), reader.i32())
        reader.nullable_string()
    reader.nullable_string()
    reader.i32()
    topics = tuple(_read_topic(reader) for _ in range(reader.array_length()))
    return ClusterInfo(brokers, topics)


def _read_topic(reader: Reader) -> TopicInfo:
    error, name, is_internal = reader.i16(), reader.string(), bool(reader.i8())
    partitions = []
    for _ in range(reader.array_length()):
        partition_error, index, leader = reader.i16(), reader.i32(), reader.i32()
        reader.i32()
        for _ in range(3):
            reader.raw(4 * max(reader.array_length(), 0))
        partitions.append(PartitionInfo(index, partition_error, leader))
    return TopicInfo(name, error, is_internal, tuple(sorted(partitions, key=lambda each: each.partition)))


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
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    isolation_level: int,
) -> bytes:
    """One partition, without a fetch session."""
    return b"".join(
        (
            _FETCH_HEAD.pack(NO_REPLICA, max_wait_ms, min_bytes, max_bytes, isolation_level, 0, -1),
            I32.pack(1),
            string(topic, flexible=False),
            I32.pack(1),
            _FETCH_PARTITION.pack(partition, -1, offset, -1, max_bytes),
            I32.pack(0),
            # No rack: a leader that sent us to a follower would not send records.
            string("", flexible=False),
        )
    )


def read_fetch(reply: memoryview) -> FetchReply:
    reader = Reader(reply)
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or not reader.i32():
        return FetchReply(error, -1, -1, -1, (), (0, 0))
    reader.string()
    reader.i32()
    reader.i32()
    error = reader.i16()
    high_watermark, last_stable, log_start = reader.i64(), reader.i64(), reader.i64()
    aborted = tuple((reader.i64(), reader.i64()) for _ in range(max(reader.array_length(), 0)))
    reader.i32()
    size = max(reader.i32(), 0)
    return FetchReply(error, high_watermark, last_stable, log_start, aborted, (reader.position, size))


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
