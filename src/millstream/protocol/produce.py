"""Produce requests and replies, versions 0 to 13. Record batches stay views of the request's buffer.

Versions 0 to 2 are parsed only to refuse each partition: they have an older record format.
"""

import struct
from typing import NamedTuple

import msgspec

from millstream.protocol.errors import ErrorCode, RecordError
from millstream.protocol.limits import LIMITS
from millstream.protocol.wire import I32, I64, Reader, array_length, nullable_string, string

_MOST_ELEMENTS = LIMITS["produce"].elements
FLEXIBLE_FROM = 9
TOPIC_ID_FROM = 13

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
# Index, error code and base offset; from version 5 on with the append time and the log's start.
_OUTCOME = struct.Struct(">ihqqq")
_OLD_OUTCOME = struct.Struct(">ihq")
# No record errors and no message: an empty array and a null string.
_NOTHING_WRONG, _NOTHING_WRONG_FLEXIBLE = b"\0\0\0\0\xff\xff", b"\1\0"


class PartitionRecords(NamedTuple):
    partition: int
    records: memoryview | None


class TopicRecords(NamedTuple):
    """`topic` is a name, or the 16 bytes of a topic id from version 13 on."""

    topic: str | bytes
    partitions: list[PartitionRecords]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class PartitionOutcome(msgspec.Struct):
    topic: str | bytes
    index: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    leader_id: int = -1
    leader_epoch: int = -1
    record_errors: tuple[RecordError, ...] = ()


def decode_produce(buffer: memoryview, position: int, version: int) -> ProduceRequest:
    reader = Reader(buffer, position, flexible=version >= FLEXIBLE_FROM, elements=_MOST_ELEMENTS)
    transactional_id = reader.nullable_string() if version >= 3 else None
    acks, timeout_ms = reader.unpack(_ACKS_AND_TIMEOUT)
    topics = []
    for _ in range(reader.array_length()):
        topic = reader.uuid() if version >= TOPIC_ID_FROM else reader.string()
        partitions = []
        for _ in range(reader.array_length()):
            index = reader.i32()
            partitions.append(PartitionRecords(index, reader.nullable_bytes()))
            reader.skip_tags()
        topics.append(TopicRecords(topic, partitions))
        reader.skip_tags()
    reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_reply(version: int, outcomes: list[PartitionOutcome], throttle_ms: int = 0) -> bytes:
    """The reply's body. Outcomes of one topic must be adjacent."""
    flexible = version >= FLEXIBLE_FROM
    groups = _by_topic(outcomes) if len(outcomes) != 1 else [(outcomes[0].topic, outcomes)]
    out = bytearray(array_length(len(groups), flexible=flexible))
    for topic, partitions in groups:
        out += topic if isinstance(topic, bytes) else string(topic, flexible=flexible)
        out += array_length(len(partitions), flexible=flexible)
        for outcome in partitions:
            _encode_partition(out, outcome, version, flexible)
        if flexible:
            out += b"\0"
    if version >= 1:
        out += I32.pack(throttle_ms)
    if flexible:
        out += b"\0"
    return bytes(out)


def _encode_partition(out: bytearray, outcome: PartitionOutcome, version: int, flexible: bool) -> None:
    appended_ms, start = outcome.log_append_time_ms, outcome.log_start_offset
    if version >= 5:
        out += _OUTCOME.pack(outcome.index, outcome.error, outcome.base_offset, appended_ms, start)
    else:
        out += _OLD_OUTCOME.pack(outcome.index, outcome.error, outcome.base_offset)
        if version >= 2:
            out += I64.pack(appended_ms)
    if not outcome.error and version >= 8:
        out += _NOTHING_WRONG_FLEXIBLE if flexible else _NOTHING_WRONG
    elif version >= 8:
        tags = b"\0" if flexible else b""
        out += array_length(len(outcome.record_errors), flexible=flexible)
        for index, message in outcome.record_errors:
            out += I32.pack(index) + nullable_string(message, flexible=flexible) + tags
        out += nullable_string(outcome.message, flexible=flexible)
    if flexible:
        if version >= 10 and outcome.leader_id >= 0:
            # One tagged field, the current leader: id, epoch, no tags of its own.
            out += b"\x01\x00\x09" + I32.pack(outcome.leader_id) + I32.pack(outcome.leader_epoch) + b"\0"
        else:
            out += b"\0"


def _by_topic(outcomes: list[PartitionOutcome]) -> list[tuple[str | bytes, list[PartitionOutcome]]]:
    groups: list[tuple[str | bytes, list[PartitionOutcome]]] = []
    for outcome in outcomes:
        if not groups or groups[-1][0] != outcome.topic:
            groups.append((outcome.topic, []))
        groups[-1][1].append(outcome)
    return groups
