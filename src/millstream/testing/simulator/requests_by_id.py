"""Produce and Fetch that name a topic by its id: what is asked of a topic never reaches another of the same name."""

import struct

from millstream.protocol.wire import I16, I32, Reader, uvarint
from millstream.spark.wire.requests import NO_REPLICA, FetchReply
from millstream.testing.simulator.requests import Produced

PRODUCE_VERSION, FETCH_VERSION = 13, 13

_NO_TAGS = b"\0"
_ONE = b"\2"
_NONE = b"\1"
_NULL = b"\0"
_ALL_REPLICAS = -1
_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")


def produce_request(topic_id: bytes, partition: int, batch: bytes, timeout_ms: int) -> bytes:
    return b"".join(
        (
            _NO_TAGS, _NULL, I16.pack(_ALL_REPLICAS), I32.pack(timeout_ms),
            _ONE, topic_id, _ONE, I32.pack(partition), uvarint(len(batch) + 1), batch, _NO_TAGS * 3,
        )
    )  # fmt: skip


def read_produce(reply: memoryview) -> Produced:
    reader = Reader(reply, flexible=True)
    reader.skip_tags()
    reader.array_length()
    reader.uuid()
    reader.array_length()
    reader.i32()
    return Produced(reader.i16(), reader.i64())


def fetch_request(topic_id: bytes, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int) -> bytes:
    """Without a fetch session."""
    return b"".join(
        (
            _NO_TAGS, _FETCH_HEAD.pack(NO_REPLICA, max_wait_ms, 1, max_bytes, 0, 0, -1),
            _ONE, topic_id, _ONE, _FETCH_PARTITION.pack(partition, -1, offset, -1, -1, max_bytes), _NO_TAGS * 2,
            _NONE, _NONE, _NO_TAGS,
        )
    )  # fmt: skip


def read_fetch(reply: memoryview) -> FetchReply:
    reader = Reader(reply, flexible=True)
    reader.skip_tags()
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or reader.array_length() < 1:
        return FetchReply(error, -1, -1, -1, (), (0, 0))
    reader.uuid()
    reader.array_length()
    reader.i32()
    error = reader.i16()
    high_watermark, last_stable, log_start = reader.i64(), reader.i64(), reader.i64()
    aborted = tuple((reader.i64(), reader.i64()) for _ in range(max(reader.array_length(), 0)))
    reader.i32()
    size = max(reader.uvarint() - 1, 0)
    return FetchReply(error, high_watermark, last_stable, log_start, aborted, (reader.position, size))
