"""The spans of records in an unpacked batch, to keep or drop records without decoding them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millstream.protocol.errors import RecordError
from millstream.protocol.record_batch import BatchHeader
from millstream.protocol.records import InvalidRecordsError, record_windows
from millstream.protocol.varint import INT64_BYTES, VarintError, encode_varint, read_varint

# The most records of one batch named in a reply; the whole batch is refused anyway.
_MOST_NAMED = 1000


class RecordSpan(NamedTuple):
    start: int
    """The position of the record's length field."""
    body: int
    """The position of its attributes; the timestamp delta follows them."""
    after_timestamp: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool


def record_spans(header: BatchHeader, data: bytes, previous_delta: int = -1) -> Iterator[RecordSpan]:
    """The spans of all records in `data`, a batch's unpacked payload; raises InvalidRecordsError.

    For a part of a payload, `header` counts its records, and `previous_delta` is the last delta of the part before.
    """
    try:
        yield from _spans(header, data, previous_delta)
    except IndexError:
        raise InvalidRecordsError("the records end before the count in the batch header is reached") from None
    except VarintError as error:
        raise InvalidRecordsError(str(error)) from None


def _spans(header: BatchHeader, data: bytes, previous_delta: int) -> Iterator[RecordSpan]:
    most_delta = header.last_offset_delta
    position = 0
    for _ in range(header.record_count):
        start = position
        length, body = read_varint(data, position)
        end = body + length
        if length < 0 or end > len(data):
            raise InvalidRecordsError(f"a record at byte {start} claims {length} bytes of {len(data) - body}")
        timestamp_delta, after_timestamp = read_varint(data, body + 1, INT64_BYTES)
        offset_delta, position = read_varint(data, after_timestamp)
        if not previous_delta < offset_delta <= most_delta:
            raise InvalidRecordsError(
                f"offset delta {offset_delta} follows {previous_delta} in a batch that ends at {most_delta}"
            )
        previous_delta = offset_delta
        key_length, position = read_varint(data, position)
        key = None
        if key_length >= 0:
            key = data[position : position + key_length]
            position += key_length
        value_length, position = read_varint(data, position)
        if key_length < -1 or value_length < -1 or position + max(value_length, 0) >= end:
            raise InvalidRecordsError(f"the fields of the record at byte {start} do not fit into its length")
        yield RecordSpan(
            start, body, after_timestamp, end, offset_delta, timestamp_delta, key, value_length >= 0
        )
        position = end
    if position != len(data):
        raise InvalidRecordsError(f"{len(data) - position} bytes follow the last record")


def keyed_windows(header: BatchHeader, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, cut at the ends of records, of a batch for a compacted topic: valid records, each with a key.

    Otherwise raises an error that names the first records without a key.
    """
    previous_delta = -1
    unkeyed: list[int] = []
    for count, window in record_windows(header, pieces):
        for span in record_spans(header._replace(record_count=count), window, previous_delta):
            if span.key is None and len(unkeyed) < _MOST_NAMED:
                unkeyed.append(span.offset_delta)
            previous_delta = span.offset_delta
        if not unkeyed:
            yield window
    if unkeyed:
        raise InvalidRecordsError(
            f"record {unkeyed[0]} has no key, which a compacted topic needs",
            tuple(
                RecordError(index, "the record has no key, which a compacted topic needs")
                for index in unkeyed
            ),
        )


def record_times(header: BatchHeader, pieces: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Timestamp and offset of each record; only one piece is in memory at a time."""
    left, most_delta = header.record_count, header.last_offset_delta
    append_time = header.max_timestamp if header.log_append_time else None
    data, position = b"", 0
    for piece in pieces:
        # Past the end when a record continues in the next piece.
        position -= len(data)
        data, position = (piece, position) if position >= 0 else (data[position:] + piece, 0)
        while left:
            try:
                length, body = read_varint(data, position)
                timestamp_delta, at = read_varint(data, body + 1, INT64_BYTES)
                offset_delta, at = read_varint(data, at)
            except IndexError:
                break
            except VarintError as error:
                raise InvalidRecordsError(str(error)) from None
            if at > body + length or not 0 <= offset_delta <= most_delta:
                raise InvalidRecordsError(f"a record of {length} bytes has offset delta {offset_delta}")
            position = body + length
            left -= 1
            timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
            yield timestamp, header.base_offset + offset_delta
        if not left:
            return
    if left:
        raise InvalidRecordsError("the records end before the count in the batch header is reached")


def with_timestamp_delta(data: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """The encoded record with another timestamp delta."""
    delta = encode_varint(timestamp_delta)
    length = 1 + len(delta) + span.end - span.after_timestamp
    attributes = data[span.body : span.body + 1]
    return b"".join((encode_varint(length), attributes, delta, data[span.after_timestamp : span.end]))
