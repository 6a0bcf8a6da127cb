import contextlib
import random
import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode
from millstream.protocol.record_batch import DELETE_HORIZON_BIT, HEADER_SIZE, read_header
from millstream.protocol.records import (
    InvalidRecordsError,
    Record,
    decode_records,
    encode_batch,
    iter_records,
    open_batch,
    record_windows,
    seal_batch,
)
from millstream.protocol.varint import encode_varint

LIMIT = 10_000_000

nullable_bytes = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**60))
    records = []
    for gap in draw(st.lists(st.integers(0, 20_000), min_size=1, max_size=20)):
        offset += gap
        timestamp = draw(st.integers(-1, 2**61))
        headers = tuple(draw(header_lists))
        records.append(Record(offset, timestamp, draw(nullable_bytes), draw(nullable_bytes), headers))
        offset += 1
    return records


def rewritten(batch: bytes, payload: bytes, **changes: int) -> bytes:
    """The batch with another payload and other header fields, under a checksum that holds."""
    return seal_batch(read_header(batch)._replace(**changes), payload)


def plain(count: int = 3, **options: Any) -> bytes:
    return encode_batch([Record(i, 1000 + i, b"k%d" % i, b"v%d" % i) for i in range(count)], **options)


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=60, deadline=None)
@given(records=record_lists())
def test_records_read_back_as_written(codec: Compression, records: list[Record]) -> None:
    batch = encode_batch(records, codec=codec, base_offset=records[0].offset)
    assert decode_records(memoryview(batch), LIMIT) == records
    header = read_header(batch)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(record.timestamp_ms for record in records)


def test_lengths_on_both_sides_of_each_varint_size_read_back() -> None:
    sizes = [0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193, 1_048_575, 1_048_576]
    records = [Record(i, i * 7, b"k" * size, b"v" * size) for i, size in enumerate(sizes)]
    assert decode_records(encode_batch(records), 2**30) == records


def test_header_fields_are_those_given() -> None:
    batch = plain(
        base_offset=0,
        leader_epoch=7,
        producer_id=11,
        producer_epoch=3,
        base_sequence=99,
        timestamp_type=1,
        transactional=True,
        control=True,
        codec=Compression.ZSTD,
    )
    header = read_header(batch)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence) == (
        7,
        11,
        3,
        99,
    )
    assert header.log_append_time
    assert header.is_transactional
    assert header.is_control
    assert header.codec == Compression.ZSTD


def test_with_log_append_time_every_record_has_the_batchs_time() -> None:
    batch = plain(timestamp_type=1)
    assert [record.timestamp_ms for record in decode_records(batch, LIMIT)] == [1002] * 3


def test_with_a_delete_horizon_the_records_keep_their_own_time() -> None:
    batch = plain(delete_horizon_ms=5_000_000)
    header = read_header(batch)
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == 5_000_000
    assert [record.timestamp_ms for record in decode_records(batch, LIMIT)] == [1000, 1001, 1002]


@pytest.mark.parametrize("codec", Compression)
def test_an_emptied_batch_holds_no_records(codec: Compression) -> None:
    batch = rewritten(plain(codec=codec), b"", record_count=0)
    assert len(batch) == HEADER_SIZE
    assert decode_records(batch, LIMIT) == []


def test_offsets_that_do_not_grow_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="grow"):
        encode_batch([Record(1, 0, None, b""), Record(1, 0, None, b"")])
    with pytest.raises(ValueError, match="grow"):
        encode_batch([Record(1, 0, None, b"")], base_offset=2)
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


def test_a_header_key_that_is_not_utf8_reads_with_replacements() -> None:
    batch = encode_batch([Record(0, 0, None, b"v", (("\u00e9", b"x"),))])
    payload = batch[HEADER_SIZE:].replace("\u00e9".encode(), b"\xff\xff")
    assert decode_records(rewritten(batch, payload), LIMIT)[0].headers == (("\ufffd\ufffd", b"x"),)


def test_the_decompressed_size_is_limited() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(100_000))], codec=Compression.ZSTD)
    with pytest.raises(InvalidRecordsError, match="allowed 50000"):
        decode_records(batch, 50_000)


@pytest.mark.parametrize("count", [0, 2, 4, 2**31 - 1, -1, -(2**31)])
def test_a_count_that_lies_is_refused(count: int) -> None:
    batch = plain()
    with pytest.raises(InvalidRecordsError) as caught:
        decode_records(rewritten(batch, batch[HEADER_SIZE:], record_count=count), LIMIT)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def body(*fields: int | bytes) -> bytes:
    """A record of the given fields, under a length that holds."""
    content = b"".join(encode_varint(field) if isinstance(field, int) else field for field in fields)
    return encode_varint(len(content)) + content


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (body(b"\0", 0, 0, -2, 0, 0), "length -2"),
        (body(b"\0", 0, 0, -1, -5, 0), "length -5"),
        (body(b"\0", 0, 0, 50, b"k", 0, 0), "end before"),
        (body(b"\0", 0, 0, 2**31 - 1, b"k", 0, 0), "end before"),
        (body(b"\0", 0, 0, -1, 1, b"v", -1), "-1 headers"),
        (body(b"\0", 0, 0, -1, 1, b"v", 5), "end before"),
        (body(b"\0", 0, 0, -1, 1, b"v", 2**31 - 1), "end before"),
        (body(b"\0", 0, 0, -1, 1, b"v", 1, -1, -1), "no key"),
        (body(b"\0", 0, -1, -1, -1, 0), "offset delta -1"),
        (body(b"\0", 0, 1, -1, -1, 0), "offset delta 1"),
        (body(b"\0", b"\xff" * 11, 0, -1, -1, 0), "too long"),
        (body(b"\0", 0, b"\xff" * 6, -1, -1, 0), "too long"),
        (body(b"\0", 0, 0, -1, -1, 0, b"extra"), "its fields take"),
        (encode_varint(-1), "claims -1 bytes"),
        (encode_varint(-70), "claims -70 bytes"),
        (encode_varint(100) + b"\0" * 6, "claims 100 bytes"),
        (b"\xff\xff\xff\xff\xff\x01", "too long"),
        (body(b"\0", 0, 0, -1, -1, 0) + b"x", "1 bytes follow"),
        (body(), "end before"),
        (b"", "end before"),
    ],
)
def test_records_that_break_the_format_are_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecordsError, match=reason):
        decode_records(rewritten(plain(1), payload), LIMIT)


def test_a_batch_that_is_not_whole_or_not_one_batch_is_refused() -> None:
    batch = plain()
    for cut in range(len(batch)):
        with pytest.raises(InvalidRecordsError):
            decode_records(batch[:cut], LIMIT)
    with pytest.raises(InvalidRecordsError, match="of"):
        decode_records(batch + b"x", LIMIT)


def test_damage_under_the_checksum_is_refused() -> None:
    batch = plain()
    for position in range(16, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x40
        with pytest.raises(InvalidRecordsError):
            decode_records(bytes(damaged), LIMIT)


def test_an_unknown_codec_is_refused() -> None:
    batch = bytearray(plain())
    struct.pack_into(">h", batch, 21, 6)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    with pytest.raises(InvalidRecordsError, match="codec 6"):
        open_batch(bytes(batch), LIMIT)


@settings(max_examples=200, deadline=None)
@given(records=record_lists(), seed=st.integers(0, 2**32))
def test_damage_in_the_records_never_raises_anything_else(records: list[Record], seed: int) -> None:
    batch = encode_batch(records, base_offset=records[0].offset)
    payload = bytearray(batch[HEADER_SIZE:])
    source = random.Random(seed)
    for _ in range(source.randint(1, 4)):
        payload[source.randrange(len(payload))] = source.choice(
            [0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)]
        )
    with contextlib.suppress(InvalidRecordsError):
        decode_records(rewritten(batch, bytes(payload[: source.randint(0, len(payload))])), LIMIT)


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 10_000])
def test_records_are_the_same_piece_by_piece(piece_bytes: int) -> None:
    records = [Record(i, i, b"k" * (i % 9), bytes(i * 13 % 400), (("h", b"x"),)) for i in range(60)]
    batch = encode_batch(records)
    header, payload = open_batch(batch, 1_000_000)
    pieces = [payload[at : at + piece_bytes] for at in range(0, len(payload), piece_bytes)]
    windows = list(record_windows(header, pieces))
    assert sum(count for count, _ in windows) == 60
    assert b"".join(window for _, window in windows) == payload
    assert list(iter_records(batch, 1_000_000)) == decode_records(batch, 1_000_000)


def test_windows_hold_what_the_header_promises() -> None:
    header, payload = open_batch(encode_batch([Record(i, i, b"k", b"v") for i in range(3)]), 1000)
    with pytest.raises(InvalidRecordsError, match="end before the count"):
        list(record_windows(header._replace(record_count=4), [payload]))
    with pytest.raises(InvalidRecordsError, match="bytes follow the last record"):
        list(record_windows(header._replace(record_count=2), [payload]))
    with pytest.raises(InvalidRecordsError, match="claims"):
        list(record_windows(header, [b"\x03" + payload]))
