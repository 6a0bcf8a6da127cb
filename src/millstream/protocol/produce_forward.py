"""The client's side of Produce, in any version: encodes requests, decodes replies. The server's side is
`protocol.produce`."""

from collections.abc import Iterable
from typing import NamedTuple

from millstream.protocol.errors import ErrorCode, RecordError
from millstream.protocol.produce import FLEXIBLE_FROM, PartitionOutcome
from millstream.protocol.wire import I16, I32, Reader, array_length, nullable_string, string, uvarint


class Batch(NamedTuple):
    topic: str | bytes
    partition: int
    records: memoryview | None


def encode_produce_request(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int, batches: Iterable[Batch]
) -> list[bytes | memoryview]:
    """The request's body, from version 3 on, as buffers to be written one after the other."""
    flexible = version >= FLEXIBLE_FROM
    topics: list[list[Batch]] = []
    for batch in batches:
        if not topics or topics[-1][0].topic != batch.topic:
            topics.append([])
        topics[-1].append(batch)
    parts: list[bytes | memoryview] = []
    out = bytearray(nullable_string(transactional_id, flexible=flexible))
    out += I16.pack(acks) + I32.pack(timeout_ms) + array_length(len(topics), flexible=flexible)
    for group in topics:
        topic = group[0].topic
        out += topic if isinstance(topic, bytes) else string(topic, flexible=flexible)
        out += array_length(len(group), flexible=flexible)
        for batch in group:
            size = -1 if batch.records is None else len(batch.records)
            out += I32.pack(batch.partition) + (uvarint(size + 1) if flexible else I32.pack(size))
            if batch.records is not None:
                parts += (bytes(out), batch.records)
                out = bytearray()
            if flexible:
                out += b"\0"
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    parts.append(bytes(out))
    return parts


def decode_produce_reply(body: memoryview, version: int) -> list[PartitionOutcome]:
    """From version 3 on; MalformedRequest for invalid bytes. Current leaders are ignored."""
    reader = Reader(body, flexible=version >= FLEXIBLE_FROM)
    outcomes = []
    for _ in range(reader.array_length()):
        topic = reader.uuid() if version >= 13 else reader.string()
        for _ in range(reader.array_length()):
            outcome = PartitionOutcome(topic, reader.i32(), _code(reader.i16()), base_offset=reader.i64())
            outcome.log_append_time_ms = reader.i64()
            if version >= 5:
                outcome.log_start_offset = reader.i64()
            if version >= 8:
                outcome.record_errors = tuple(_record_error(reader) for _ in range(reader.array_length()))
                outcome.message = reader.nullable_string()
            reader.skip_tags()
            outcomes.append(outcome)
        reader.skip_tags()
    return outcomes


def _record_error(reader: Reader) -> RecordError:
    error = RecordError(reader.i32(), reader.nullable_string())
    reader.skip_tags()
    return error


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
