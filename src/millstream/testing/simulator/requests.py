"""Requests of the simulated clients that write, in non-flexible versions; and Produce with the topic's id, which never
reaches another topic of the same name.
"""

from dataclasses import dataclass

from millstream.protocol.wire import I16, I32, Reader, string, uvarint

PRODUCE, PRODUCE_VERSION, PRODUCE_BY_ID_VERSION = 0, 7, 13
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 4
DELETE_TOPICS, DELETE_TOPICS_VERSION = 20, 3
INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION = 22, 1

_NULL = I16.pack(-1)
_ALL_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class Produced:
    error: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    error: int
    producer_id: int
    epoch: int


def produce_request(topic: str, partition: int, batch: bytes, timeout_ms: int) -> bytes:
    return b"".join(
        (
            _NULL, I16.pack(_ALL_REPLICAS), I32.pack(timeout_ms),
            I32.pack(1), string(topic, flexible=False), I32.pack(1), I32.pack(partition), I32.pack(len(batch)), batch,
        )
    )  # fmt: skip


def read_produce(reply: memoryview) -> Produced:
    reader = Reader(reply)
    reader.i32()
    reader.string()
    reader.i32()
    reader.i32()
    return Produced(reader.i16(), reader.i64())


def produce_by_id_request(topic_id: bytes, partition: int, batch: bytes, timeout_ms: int) -> bytes:
    null, no_tags, one = b"\0", b"\0", b"\2"
    return b"".join(
        (
            no_tags, null, I16.pack(_ALL_REPLICAS), I32.pack(timeout_ms),
            one, topic_id, one, I32.pack(partition), uvarint(len(batch) + 1), batch, no_tags * 3,
        )
    )  # fmt: skip


def read_produce_by_id(reply: memoryview) -> Produced:
    reader = Reader(reply, flexible=True)
    reader.skip_tags()
    reader.array_length()
    reader.uuid()
    reader.array_length()
    reader.i32()
    return Produced(reader.i16(), reader.i64())


def init_producer_id_request() -> bytes:
    return _NULL + I32.pack(60_000)


def read_init_producer_id(reply: memoryview) -> ProducerIdentity:
    reader = Reader(reply)
    reader.i32()
    return ProducerIdentity(reader.i16(), reader.i64(), reader.i16())


def create_topic_request(topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> bytes:
    body = I32.pack(1) + string(topic, flexible=False) + I32.pack(partitions) + I16.pack(replicas)
    body += I32.pack(0) + I32.pack(len(configs))
    for name, value in configs.items():
        body += string(name, flexible=False) + string(value, flexible=False)
    return body + I32.pack(5_000) + b"\0"


def delete_topic_request(topic: str) -> bytes:
    return I32.pack(1) + string(topic, flexible=False) + I32.pack(5_000)


def read_topic_error(reply: memoryview) -> int:
    """The error for the only topic of a create or delete request."""
    reader = Reader(reply)
    reader.i32()
    reader.i32()
    reader.string()
    return reader.i16()
