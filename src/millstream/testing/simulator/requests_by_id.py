"""Produce that names a topic by its id: what is asked of a topic never reaches another of the same name."""

from millstream.protocol.wire import I16, I32, Reader, uvarint
from millstream.testing.simulator.requests import Produced

PRODUCE_VERSION = 13

_NO_TAGS = b"\0"
_ONE = b"\2"
_NULL = b"\0"
_ALL_REPLICAS = -1


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
