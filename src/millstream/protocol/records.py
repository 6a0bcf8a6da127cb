"""The records inside a v2 batch: reading and building batches.

    length varint | attributes int8 | timestamp_delta varlong | offset_delta varint
    key_length varint (-1: null) | key | value_length varint (-1: null) | value
    header_count varint | (key_length varint | key | value_length varint (-1: null) | value) ...

The broker passes batches on without reading them; this is for HTTP, MQTT, internal topics and tools.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from millstream.protocol.checksum import crc32c
from millstream.protocol.compression import (
    PIECE_BYTES,
    Buffer,
    Compression,
    DecompressionError,
    UnpacksToMore,
    compress,
    decompress,
    unpack,
)
from millstream.protocol.errors import ErrorCode, KafkaError, RecordError
from millstream.protocol.record_batch import (
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    check_stored,
    read_header,
)
from millstream.protocol.varint import INT64_BYTES, VarintError, encode_varint, read_varint

Headers = tuple[tuple[str, bytes | None], ...]

_UNBOUNDED = 1 << 62
_AFTER_CRC = BatchHeader._fields.index("crc") + 1
_NULL = encode_varint(-1)
_NULL_BYTE = _NULL[0]


class InvalidRecordsError(KafkaError):
    """A batch whose records do not match its header, or cannot be stored in their topic."""

    def __init__(self, message: str, records: tuple[RecordError, ...] = ()) -> None:
        """`records`: the invalid records, if the others are valid."""
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.records = records


class TooLargeUnpacked(InvalidRecordsError):
    """A batch that unpacks to more than its reader allows."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = ErrorCode.MESSAGE_TOO_LARGE


class Record(msgspec.Struct, frozen=True, gc=False):
    """One message. A msgspec struct, because creating a frozen dataclass takes longer than decoding the record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(
    batch: memoryview | bytes | bytearray, limit: int, most_headers: int = _UNBOUNDED
) -> list[Record]:
    """The records of one whole batch that unpacks to at most `limit` bytes, with no more headers than that together."""
    header, payload = open_batch(batch, limit)
    try:
        return _decode(header, payload, most_headers)
    except IndexError:
        raise InvalidRecordsError("the records end before the count in the batch header is reached") from None
    except VarintError as error:
        raise InvalidRecordsError(str(error)) from None


def check_record_count(header: BatchHeader, most: int) -> None:
    """Raise before unpacking if the header claims too many records: a few bytes may stand for millions."""
    if header.record_count > most:
        raise TooLargeUnpacked(f"a batch of {header.record_count} records; at most {most} are opened")


def iter_records(
    batch: memoryview | bytes | bytearray,
    limit: int,
    piece_bytes: int = PIECE_BYTES,
    most_headers: int = _UNBOUNDED,
) -> Iterator[Record]:
    """As `decode_records`, with a piece of them in memory at a time; what is wrong is found when it is reached.

    A piece has no more than `most_headers`; one that is a single record may be large.
    """
    header, pieces = unpack_batch(batch, limit)
    cut = (each[at : at + piece_bytes] for each in pieces for at in range(0, len(each), piece_bytes))
    for count, window in record_windows(header, cut):
        try:
            yield from _decode(header._replace(record_count=count), window, most_headers)
        except IndexError:
            raise InvalidRecordsError("a record ends before its fields do") from None
        except VarintError as error:
            raise InvalidRecordsError(str(error)) from None


def unpack_batch(batch: memoryview | bytes | bytearray, limit: int) -> tuple[BatchHeader, Iterator[bytes]]:
    """As `open_batch`, piece by piece."""
    header, packed = _checked(batch)
    return header, _unpacked(header, packed, limit)


def _unpacked(header: BatchHeader, packed: memoryview, limit: int) -> Iterator[bytes]:
    if not packed and header.record_count == 0:
        return
    try:
        yield from unpack(Compression(header.codec), packed, limit)
    except UnpacksToMore as error:
        raise TooLargeUnpacked(str(error)) from None
    except DecompressionError as error:
        raise InvalidRecordsError(str(error)) from None


def record_windows(header: BatchHeader, pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The pieces, cut at the ends of records, with their record counts; raises unless the total matches the header."""
    left = header.record_count
    waiting: list[bytes] = []
    waiting_bytes = wanted_bytes = 0
    for piece in pieces:
        waiting.append(piece)
        waiting_bytes += len(piece)
        if waiting_bytes < wanted_bytes:
            # A record is larger than a piece.
            continue
        data = waiting[0] if len(waiting) == 1 else b"".join(waiting)
        count, end, wanted_bytes = _whole_records(data, left)
        if count:
            left -= count
            yield count, data[:end]
        waiting = [data[end:]]
        waiting_bytes = len(waiting[0])
    if left:
        raise InvalidRecordsError("the records end before the count in the batch header is reached")
    if waiting_bytes:
        raise InvalidRecordsError(f"{waiting_bytes} bytes follow the last record")


def _whole_records(data: bytes, most: int) -> tuple[int, int, int]:
    """The number of whole records, the position of their end, and the size of the next one."""
    position = count = 0
    end = len(data)
    while count < most and position < end:
        raw = data[position]
        if raw < 0x80:
            length, body = (raw >> 1) ^ -(raw & 1), position + 1
        else:
            try:
                length, body = read_varint(data, position)
            except IndexError:
                break
            except VarintError as error:
                raise InvalidRecordsError(str(error)) from None
        if length < 0:
            raise InvalidRecordsError(f"a record claims {length} bytes")
        if body + length > end:
            return count, position, body - position + length
        position = body + length
        count += 1
    return count, position, 0


def open_batch(batch: memoryview | bytes | bytearray, limit: int) -> tuple[BatchHeader, bytes]:
    """Check one whole batch and unpack its records, still encoded."""
    header, packed = _checked(batch)
    if not packed and header.record_count == 0:
        return header, b""
    try:
        return header, decompress(Compression(header.codec), packed, limit)
    except UnpacksToMore as error:
        raise TooLargeUnpacked(str(error)) from None
    except DecompressionError as error:
        raise InvalidRecordsError(str(error)) from None


def _checked(batch: memoryview | bytes | bytearray) -> tuple[BatchHeader, memoryview]:
    """The batch's header and packed payload; a batch emptied by compaction has no payload, whatever its codec."""
    view = memoryview(batch)
    if len(view) < HEADER_SIZE:
        raise InvalidRecordsError(f"{len(view)} bytes are too few for a record batch")
    header = read_header(view)
    try:
        check_stored(view, 0, header)
    except CorruptBatch as error:
        raise InvalidRecordsError(error.message) from None
    if header.size_bytes != len(view):
        raise InvalidRecordsError(f"record batch claims {header.size_bytes} bytes of {len(view)}")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise InvalidRecordsError(
            f"record batch counts {header.record_count} records up to delta {header.last_offset_delta}"
        )
    if header.codec > Compression.ZSTD:
        raise InvalidRecordsError(f"compression codec {header.codec} is unknown")
    return header, view[HEADER_SIZE:]


def _decode(header: BatchHeader, data: bytes, headers_left: int = _UNBOUNDED) -> list[Record]:  # noqa: C901
    # Lengths and deltas of one or two bytes are read inline: a call for each would double the time.
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    most_delta = header.last_offset_delta
    append_time = header.max_timestamp if header.log_append_time else None
    end = len(data)
    records: list[Record] = []
    position = 0
    last_rest = b""
    last_headers: Headers = ()
    for _ in range(header.record_count):
        raw = data[position]
        if raw < 0x80:
            length = (raw >> 1) ^ -(raw & 1)
            position += 1
        elif (high := data[position + 1]) < 0x80:
            raw = raw & 0x7F | high << 7
            length = (raw >> 1) ^ -(raw & 1)
            position += 2
        else:
            length, position = read_varint(data, position)
        record_start = position
        record_end = position + length
        if length < 0 or record_end > end:
            raise InvalidRecordsError(
                f"a record at byte {position} claims {length} bytes of {end - position}"
            )

        # The byte before the timestamp holds the record's attributes, of which Kafka uses none.
        raw = data[position + 1]
        if raw < 0x80:
            timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
            position += 2
        else:
            timestamp, position = read_varint(data, position + 1, INT64_BYTES)
            timestamp += base_timestamp

        raw = data[position]
        if raw < 0x80:
            delta = (raw >> 1) ^ -(raw & 1)
            position += 1
        elif (high := data[position + 1]) < 0x80:
            raw = raw & 0x7F | high << 7
            delta = (raw >> 1) ^ -(raw & 1)
            position += 2
        else:
            delta, position = read_varint(data, position)
        if not 0 <= delta <= most_delta:
            raise InvalidRecordsError(f"a record has offset delta {delta}, the batch ends at {most_delta}")

        key: bytes | None
        raw = data[position]
        if raw < 0x80 and not raw & 1:
            key = data[position + 1 : (position := position + 1 + (raw >> 1))]
        elif raw == _NULL_BYTE:
            key = None
            position += 1
        else:
            key, position = _read_bytes(data, position)

        value: bytes | None
        raw = data[position]
        if raw < 0x80 and not raw & 1:
            value = data[position + 1 : (position := position + 1 + (raw >> 1))]
        elif (high := data[position + 1]) < 0x80 and not raw & 1:
            value = data[position + 2 : (position := position + 2 + ((raw & 0x7F | high << 7) >> 1))]
        else:
            value, position = _read_bytes(data, position)

        headers: Headers = ()
        if data[position]:
            # Usually the same headers as in the previous record: a producer's headers seldom change.
            rest = data[position:record_end]
            if rest == last_rest:
                headers, position = last_headers, record_end
            else:
                headers, position = _read_headers(data, position, headers_left)
                headers_left -= len(headers)
                last_rest, last_headers = rest, headers
        else:
            position += 1
        if position != record_end:
            raise InvalidRecordsError(
                f"a record claims {length} bytes but its fields take {position - record_start}"
            )
        records.append(
            Record(
                base_offset + delta, timestamp if append_time is None else append_time, key, value, headers
            )
        )
    if position != end:
        raise InvalidRecordsError(f"{end - position} bytes follow the last record")
    return records


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        if length != -1:
            raise InvalidRecordsError(f"a record has a field of length {length}")
        return None, position
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, most: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if count < 0:
        raise InvalidRecordsError(f"a record counts {count} headers")
    if count > most:
        raise TooLargeUnpacked(f"a record counts {count} headers; {most} more are read of its batch")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        # Lengths of one byte are read inline, as in records.
        raw = data[position]
        if raw < 0x80 and not raw & 1:
            key: bytes | None = data[position + 1 : (position := position + 1 + (raw >> 1))]
        else:
            key, position = _read_bytes(data, position)
        if key is None:
            raise InvalidRecordsError("a record header has no key")
        raw = data[position]
        if raw < 0x80 and not raw & 1:
            value: bytes | None = data[position + 1 : (position := position + 1 + (raw >> 1))]
        else:
            value, position = _read_bytes(data, position)
        # Java reads a key that is not UTF-8 with replacement characters; refusing it would lose the message.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Encode records in one pass: a call for each would take three times as long."""
    varint, parts = encode_varint, list[bytes]()
    start, start_delta = b"\x00\x00", 0
    """Cached attributes and timestamp, which the next record often shares, like its headers."""
    last_headers: Headers = ()
    sized_headers = b"\x00"
    for record in records:
        key, value, headers = record.key, record.value, record.headers
        delta = record.timestamp_ms - base_timestamp
        if delta != start_delta:
            start, start_delta = b"\x00" + varint(delta), delta
        offset = varint(record.offset - base_offset)
        sized_key = _NULL if key is None else varint(len(key)) + key
        if value is None:
            size, value = _NULL, b""
        else:
            size = varint(len(value))
        if headers is not last_headers:
            last_headers, sized_headers = headers, _encode_headers(headers) if headers else b"\x00"
        length = len(start) + len(offset) + len(sized_key) + len(size) + len(value) + len(sized_headers)
        parts += (varint(length), start, offset, sized_key, size, value, sized_headers)
    return b"".join(parts)


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, content in headers:
        encoded_name = name.encode()
        parts += (encode_varint(len(encoded_name)), encoded_name)
        parts += (_NULL,) if content is None else (encode_varint(len(content)), content)
    return b"".join(parts)


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Compression = Compression.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: int = 0,
    transactional: bool = False,
    control: bool = False,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """One batch of records with increasing offsets from `base_offset` on; gaps are allowed."""
    if not records:
        raise ValueError("a record batch needs at least one record")
    last, newest = base_offset - 1, records[0].timestamp_ms
    for record in records:
        if record.offset <= last:
            raise ValueError(
                f"offset {record.offset} follows {last}: offsets in a batch grow from its base offset"
            )
        last = record.offset
        if record.timestamp_ms > newest:
            newest = record.timestamp_ms
    base_timestamp = records[0].timestamp_ms if delete_horizon_ms is None else delete_horizon_ms
    payload = encode_records(records, base_offset, base_timestamp)
    attributes = codec | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
    attributes |= (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    attributes |= 0 if delete_horizon_ms is None else DELETE_HORIZON_BIT
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal_packed(header, payload) if codec is Compression.NONE else seal_batch(header, payload, level)


def seal_batch(header: BatchHeader, payload: bytes, level: int | None = None) -> bytes:
    """A batch of encoded records, packed with the header's codec; length and checksum are computed."""
    return seal_packed(header, compress(Compression(header.codec), payload, level) if payload else b"")


def seal_packed(header: BatchHeader, packed: Buffer) -> bytes:
    """As `seal_batch`, for packed records."""
    batch_length = HEADER_SIZE - PREFIX_SIZE + len(packed)
    rest = header[_AFTER_CRC:]
    batch = bytearray(HEADER.pack(header.base_offset, batch_length, header.leader_epoch, MAGIC, 0, *rest))
    batch += packed
    crc = crc32c(memoryview(batch)[CRC_START:])
    batch[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "big")
    return bytes(batch)
