"""OffsetCommit requests and replies, versions 2 to 10: consumers send them all the time, some with many partitions."""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.protocol.limits import LIMITS
from millstream.protocol.wire import I32, MalformedRequest, Reader, array_length, string

_MOST_ELEMENTS = LIMITS["offset_commit"].elements
FLEXIBLE_FROM = 8
TOPIC_ID_FROM = 10

_PLACE = struct.Struct(">iq")
_PLACE_AND_EPOCH = struct.Struct(">iqi")
_OUTCOME = struct.Struct(">ih")
_FLEXIBLE_OUTCOME = struct.Struct(">ihx")


class PartitionCommit(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class TopicCommit(NamedTuple):
    """`topic` is a name, or the 16 bytes of a topic id from version 10 on."""

    topic: str | bytes
    partitions: list[PartitionCommit]


class CommitRequest(NamedTuple):
    group_id: str
    generation_or_epoch: int
    member_id: str
    instance_id: str | None
    # Versions 2 to 4 let the client choose the retention; -1 is the broker's.
    retention_ms: int
    topics: list[TopicCommit]


class TopicOutcome(NamedTuple):
    """Partitions and their error codes."""

    topic: str | bytes
    partitions: Sequence[tuple[int, int]]


def decode_offset_commit(buffer: memoryview, position: int, version: int) -> CommitRequest:
    reader = Reader(buffer, position, flexible=version >= FLEXIBLE_FROM, elements=_MOST_ELEMENTS)
    group_id = reader.string()
    generation = reader.i32()
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 7 else None
    retention_ms = reader.i64() if version <= 4 else -1
    topics = []
    for _ in range(_present(reader.array_length())):
        topic = reader.uuid() if version >= TOPIC_ID_FROM else reader.string()
        topics.append(TopicCommit(topic, _decode_partitions(reader, version)))
        reader.skip_tags()
    reader.skip_tags()
    if reader.position != len(buffer):
        raise MalformedRequest(
            f"offset_commit version {version} leaves {len(buffer) - reader.position} bytes unread"
        )
    return CommitRequest(group_id, generation, member_id, instance_id, retention_ms, topics)


def _decode_partitions(reader: Reader, version: int) -> list[PartitionCommit]:
    partitions = []
    for _ in range(_present(reader.array_length())):
        if version >= 6:
            index, offset, leader_epoch = reader.unpack(_PLACE_AND_EPOCH)
        else:
            (index, offset), leader_epoch = reader.unpack(_PLACE), -1
        partitions.append(PartitionCommit(index, offset, leader_epoch, reader.nullable_string() or ""))
        reader.skip_tags()
    return partitions


def encode_offset_commit_reply(version: int, topics: Sequence[TopicOutcome], throttle_ms: int = 0) -> bytes:
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(I32.pack(throttle_ms) if version >= 3 else b"")
    out += array_length(len(topics), flexible=flexible)
    for topic, partitions in topics:
        out += topic if isinstance(topic, bytes) else string(topic, flexible=flexible)
        out += array_length(len(partitions), flexible=flexible)
        out += b"".join(_outcomes(partitions, flexible))
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    return bytes(out)


def _outcomes(partitions: Sequence[tuple[int, int]], flexible: bool) -> Iterable[bytes]:
    pack = (_FLEXIBLE_OUTCOME if flexible else _OUTCOME).pack
    return (pack(index, code) for index, code in partitions)


def _present(count: int) -> int:
    if count < 0:
        raise MalformedRequest("an array that must be there is null")
    return count
