import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    check_produced,
    iter_batches,
    read_header,
    stamp,
    stamp_append_time,
)
from millstream.protocol.records import Record, decode_records, encode_batch

LIMIT = 1 << 20


def batch_of(count: int = 3, **options: Any) -> bytearray:
    return bytearray(encode_batch([Record(i, 1000 + i, b"k", b"v%d" % i) for i in range(count)], **options))


def altered(**changes: int) -> bytearray:
    """A batch with other header fields under a checksum that holds, unless that is what changes."""
    batch = batch_of()
    header = read_header(batch)._replace(**changes)
    HEADER.pack_into(batch, 0, *header)
    if "crc" not in changes:
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
    return batch


def refusal(batch: bytes | bytearray, version: int = 9) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_produced(memoryview(batch), version)
    return caught.value.code


def test_a_sound_batch_is_taken_and_its_header_returned() -> None:
    header = check_produced(memoryview(batch_of(5, codec=Compression.ZSTD)), 7)
    assert (header.record_count, header.codec, header.last_offset) == (5, Compression.ZSTD, 4)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (batch_of()[: HEADER_SIZE - 1], ErrorCode.CORRUPT_MESSAGE),
        (batch_of()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch_of() + b"x", ErrorCode.INVALID_RECORD),
        (batch_of() + batch_of(), ErrorCode.INVALID_RECORD),
        (altered(crc=1), ErrorCode.CORRUPT_MESSAGE),
        (altered(magic=0), ErrorCode.INVALID_RECORD),
        (altered(magic=1), ErrorCode.INVALID_RECORD),
        (altered(magic=3), ErrorCode.INVALID_RECORD),
        (altered(batch_length=-1), ErrorCode.CORRUPT_MESSAGE),
        (altered(batch_length=2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (altered(batch_length=0), ErrorCode.CORRUPT_MESSAGE),
        (altered(record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (altered(record_count=-5), ErrorCode.INVALID_RECORD),
        (altered(record_count=2), ErrorCode.INVALID_RECORD),
        (altered(last_offset_delta=7), ErrorCode.INVALID_RECORD),
        (altered(attributes=0x20), ErrorCode.INVALID_RECORD),
        (altered(attributes=0x10), ErrorCode.INVALID_RECORD),
        (altered(attributes=5), ErrorCode.INVALID_RECORD),
        (altered(attributes=7), ErrorCode.INVALID_RECORD),
        (altered(producer_id=4, producer_epoch=-1, base_sequence=0), ErrorCode.INVALID_RECORD),
        (altered(producer_id=4, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "empty", "shorter than a header", "cut", "a byte too many", "two batches", "wrong checksum", "magic 0",
        "magic 1", "magic 3", "negative length", "length beyond the end", "length zero", "no records", "negative count",
        "fewer records than offsets", "more offsets than records", "control batch", "transactional without producer",
        "codec 5", "codec 7", "idempotent without epoch", "idempotent without sequence",
    ],
)  # fmt: skip
def test_what_is_no_sound_batch_is_refused(batch: bytearray, code: ErrorCode) -> None:
    assert refusal(batch) == code


def test_zstd_is_refused_from_clients_whose_consumers_might_not_know_it() -> None:
    assert refusal(batch_of(codec=Compression.ZSTD), version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("place", ["attributes", "records", "crc"])
def test_a_flipped_bit_under_the_checksum_is_noticed(bit: int, place: str) -> None:
    batch = batch_of()
    at = {"attributes": 22, "records": len(batch) - 3, "crc": 18}[place]
    batch[at] ^= 1 << bit
    assert refusal(batch) == ErrorCode.CORRUPT_MESSAGE


def test_stamping_offset_and_epoch_leaves_the_checksum_alone() -> None:
    batch = batch_of()
    stamp(batch, 0, 12_345, 7)
    header = check_produced(memoryview(batch), 9)
    assert (header.base_offset, header.leader_epoch) == (12_345, 7)
    assert [record.offset for record in decode_records(batch, LIMIT)] == [12_345, 12_346, 12_347]


def test_stamping_the_append_time_gives_it_to_every_record_under_a_new_checksum() -> None:
    batch = batch_of()
    stamp_append_time(batch, 0, read_header(batch), 99_000)
    header = check_produced(memoryview(batch), 9)
    assert header.log_append_time
    assert {record.timestamp_ms for record in decode_records(batch, LIMIT)} == {99_000}


def test_batches_are_found_one_after_the_other() -> None:
    data = memoryview(bytes(batch_of(2) + batch_of(3)))
    assert [(at, header.record_count) for at, header in iter_batches(data)] == [(0, 2), (len(batch_of(2)), 3)]


@pytest.mark.parametrize("cut", [1, 30, HEADER_SIZE + 5])
def test_a_torn_tail_is_found_at_its_position(cut: int) -> None:
    first = batch_of(2)
    data = memoryview(bytes(first + batch_of(3)[:cut]))
    found = iter_batches(data)
    assert next(found)[0] == 0
    with pytest.raises(CorruptBatch) as caught:
        next(found)
    assert caught.value.position == len(first)


@pytest.mark.parametrize(
    ("first", "count", "last"),
    [(0, 1, 0), (5, 3, 7), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (-1, 3, -1)],
)
def test_sequence_numbers_wrap_to_zero(first: int, count: int, last: int) -> None:
    make: Callable[..., BatchHeader] = read_header(batch_of())._replace
    assert make(base_sequence=first, last_offset_delta=count - 1).last_sequence == last
