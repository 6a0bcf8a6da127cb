"""ShareFetch requests and replies, versions 1 and 2. Record batches go into the reply as buffers, never copied."""

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from millstream.protocol.limits import LIMITS
from millstream.protocol.share_acknowledge import (
    AckTopic,
    Endpoint,
    encode_endpoints,
    present,
    read_topic,
    topic_id,
)
from millstream.protocol.wire import I32, MalformedRequest, Reader, array_length, nullable_string, uvarint

MODES_FROM = 2
"""The first version with an acquire mode and renewals in the request."""
_MOST_ELEMENTS = LIMITS["share_fetch"].elements
# The session's epoch, max_wait_ms, min_bytes, max_bytes, max_records and batch_size; the acquire mode, and renewal.
_WANTED = struct.Struct(">iiiiii")
_MODES = struct.Struct(">bb")
# In a reply: throttle time and error code; of a partition: index and error code; of a range; of the leader.
_HEAD = struct.Struct(">ih")
_RANGE = struct.Struct(">qqhB")
_LEADER = struct.Struct(">iiB")
# A partition without errors, up to its records.
_FINE = struct.Struct(">ihBhBiiB")


class ShareFetchRequest(NamedTuple):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[AckTopic]
    forgotten: list[tuple[UUID, list[int]]]


class FetchedShare(NamedTuple):
    """One partition. `ranges`: first offset, last offset and delivery count of the records acquired for the client."""

    partition_index: int
    error: int = 0
    message: str | None = None
    acknowledge_error: int = 0
    acknowledge_message: str | None = None
    leader: tuple[int, int] = (-1, -1)
    batches: Sequence[memoryview | bytes] = ()
    ranges: Sequence[tuple[int, int, int]] = ()


class ShareFetchAnswer(NamedTuple):
    error: int = 0
    message: str | None = None
    lock_ms: int = 0
    topics: Sequence[tuple[UUID, Sequence[FetchedShare]]] = ()
    endpoints: Sequence[Endpoint] = ()


def decode_share_fetch(buffer: memoryview, position: int, version: int) -> ShareFetchRequest:
    reader = Reader(buffer, position, flexible=True, elements=_MOST_ELEMENTS)
    group_id, member_id = reader.nullable_string(), reader.nullable_string()
    wanted = reader.unpack(_WANTED)
    mode, renews = reader.unpack(_MODES) if version >= MODES_FROM else (0, 0)
    topics = [read_topic(reader) for _ in range(present(reader.array_length()))]
    forgotten = []
    for _ in range(present(reader.array_length())):
        topic = topic_id(reader.uuid())
        forgotten.append((topic, [reader.i32() for _ in range(present(reader.array_length()))]))
        reader.skip_tags()
    reader.skip_tags()
    if reader.position != len(buffer):
        raise MalformedRequest(f"share_fetch leaves {len(buffer) - reader.position} bytes unread")
    return ShareFetchRequest._make((group_id, member_id, *wanted, mode, renews != 0, topics, forgotten))


def encode_share_fetch_reply(answer: ShareFetchAnswer, throttle_ms: int) -> list[bytes | memoryview]:
    """The same in both versions: the body as buffers to be written one after the other."""
    parts: list[bytes | memoryview] = []
    out = bytearray(_HEAD.pack(throttle_ms, answer.error))
    out += nullable_string(answer.message, flexible=True)
    out += I32.pack(answer.lock_ms)
    out += array_length(len(answer.topics), flexible=True)
    for topic, partitions in answer.topics:
        out += topic.bytes
        out += array_length(len(partitions), flexible=True)
        for each in partitions:
            out = _partition(parts, out, each)
        out += b"\0"
    out += encode_endpoints(answer.endpoints)
    out += b"\0"
    parts.append(bytes(out))
    return parts


def _partition(parts: list[bytes | memoryview], out: bytearray, told: FetchedShare) -> bytearray:
    if told.error or told.acknowledge_error:
        out += I32.pack(told.partition_index)
        for code, message in ((told.error, told.message), (told.acknowledge_error, told.acknowledge_message)):
            out += code.to_bytes(2, "big", signed=True)
            out += nullable_string(message, flexible=True)
        out += _LEADER.pack(*told.leader, 0)
    else:
        out += _FINE.pack(told.partition_index, 0, 0, 0, 0, *told.leader, 0)
    out += uvarint(sum(map(len, told.batches)) + 1)
    if told.batches:
        parts.append(bytes(out))
        parts += told.batches
        out = bytearray()
    out += array_length(len(told.ranges), flexible=True)
    for first, last, count in told.ranges:
        out += _RANGE.pack(first, last, count, 0)
    out += b"\0"
    return out
