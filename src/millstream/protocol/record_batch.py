"""Kafka's record batch, format v2, without its records: the 61-byte header, checksum and stamps.

    base_offset int64 | batch_length int32 | leader_epoch int32 | magic int8 | crc uint32 | attributes int16
    last_offset_delta int32 | base_timestamp int64 | max_timestamp int64 | producer_id int64
    producer_epoch int16 | base_sequence int32 | record_count int32 | records ...

The checksum covers everything from `attributes` on, so offset and leader epoch can be stamped without touching it.
`protocol.records` reads the records.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from millstream.protocol.checksum import crc32c
from millstream.protocol.errors import ErrorCode, KafkaError

HEADER = struct.Struct(">qiibIhiqqqhii")
_COUNT = struct.Struct(">i")
HEADER_SIZE = HEADER.size
_COUNT_AT = HEADER_SIZE - _COUNT.size
# The header up to `last_offset_delta`, without `attributes`: what a read needs of each batch.
HEADER_START = struct.Struct(">qiibI2xi")
PREFIX = struct.Struct(">qi")
PREFIX_SIZE = PREFIX.size
CRC_START = 21
MAGIC = 2
MAGIC_AT = 16

_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_EPOCH_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 12, 17, 21, 35

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
ZSTD = 4

NO_PRODUCER = -1
NO_TIMESTAMP = -1


def encode_epoch(leader_epoch: int, position: int) -> tuple[list[bytes], int]:
    """The bytes and the position to write to give the batch at `position` of a file this epoch."""
    return [_EPOCH.pack(leader_epoch)], position + _EPOCH_AT


class CorruptBatch(KafkaError):
    """Bytes that are no valid batch."""

    def __init__(self, message: str, position: int, segment_base: int = -1) -> None:
        """`segment_base`: the base offset of the damaged segment; -1 outside a log."""
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.position = position
        self.segment_base = segment_base


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return PREFIX_SIZE + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequences wrap around to 0 after 2**31 - 1."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF if self.base_sequence >= 0 else -1


def record_count_at(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """The number of records of the batch there, without the rest of its header."""
    count: int = _COUNT.unpack_from(buffer, position + _COUNT_AT)[0]
    return count


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def check_stored(view: memoryview, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatch unless `view` has the whole batch at `position` with a good checksum."""
    if header.magic != MAGIC:
        raise CorruptBatch(f"record batch has magic {header.magic}, expected {MAGIC}", position)
    size = header.size_bytes
    if size < HEADER_SIZE or position + size > len(view):
        raise CorruptBatch(f"record batch claims {size} bytes", position)
    if header.crc != crc32c(view[position + CRC_START : position + size]):
        raise CorruptBatch("record batch fails its checksum", position)


def iter_batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; CorruptBatch at the first invalid one, including a torn tail."""
    position, end = 0, len(view)
    while position < end:
        if end - position < HEADER_SIZE:
            raise CorruptBatch(f"{end - position} bytes are too few for a record batch", position)
        header = read_header(view, position)
        check_stored(view, position, header)
        yield position, header
        position += header.size_bytes


def check_produced(view: memoryview, produce_version: int) -> BatchHeader:
    """Validate a producer's data for one partition: exactly one batch, whole, intact and plausible."""
    size = len(view)
    if size < HEADER_SIZE:
        magic = view[MAGIC_AT] if size > MAGIC_AT else MAGIC
        if magic < MAGIC:
            raise _invalid(f"message format v{magic} is not supported, only record batches of format v2 are")
        raise CorruptBatch(f"{size} bytes are too few for a record batch", 0)
    header = BatchHeader._make(HEADER.unpack_from(view, 0))
    if header.magic != MAGIC:
        raise _invalid(
            f"message format v{header.magic} is not supported, only record batches of format v2 are"
        )
    if header.batch_length != size - PREFIX_SIZE:
        if HEADER_SIZE <= header.size_bytes < size:
            raise _invalid("a produce request holds exactly one record batch per partition")
        raise CorruptBatch(f"record batch claims {header.size_bytes} bytes of {size}", 0)
    if header.crc != crc32c(view[CRC_START:]):
        raise CorruptBatch("record batch fails its checksum", 0)
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"record batch counts {header.record_count} records but ends at delta {header.last_offset_delta}"
        )
    _check_attributes(header, produce_version)
    return header


def _check_attributes(header: BatchHeader, produce_version: int) -> None:
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        raise _invalid("clients may not write control records")
    codec = attributes & CODEC_MASK
    if codec > ZSTD:
        raise _invalid(f"compression codec {codec} is unknown")
    if codec == ZSTD and produce_version < 7:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce requests of version 7 or later"
        )
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise _invalid("an idempotent batch needs a producer epoch and a sequence number")
    elif attributes & TRANSACTIONAL_BIT:
        raise _invalid("a transactional batch needs a producer id")


def stamp(view: memoryview | bytearray, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set offset and leader epoch in place; the checksum covers neither."""
    _OFFSET.pack_into(view, position, base_offset)
    _EPOCH.pack_into(view, position + _EPOCH_AT, leader_epoch)


def stamp_append_time(view: memoryview | bytearray, position: int, header: BatchHeader, now_ms: int) -> None:
    """Give all records of the batch the broker's time, and the batch a new checksum."""
    _ATTRIBUTES.pack_into(view, position + _ATTRIBUTES_AT, header.attributes | TIMESTAMP_TYPE_BIT)
    _OFFSET.pack_into(view, position + _MAX_TIMESTAMP_AT, now_ms)
    body = memoryview(view)[position + CRC_START : position + header.size_bytes]
    _CRC.pack_into(view, position + _CRC_AT, crc32c(body))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
