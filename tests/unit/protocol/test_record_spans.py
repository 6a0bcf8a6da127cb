import contextlib
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.compression import Compression
from millstream.protocol.record_batch import HEADER_SIZE, read_header
from millstream.protocol.record_spans import keyed_windows, record_spans, record_times, with_timestamp_delta
from millstream.protocol.records import (
    InvalidRecordsError,
    Record,
    decode_records,
    encode_batch,
    open_batch,
    seal_batch,
    unpack_batch,
)
from millstream.protocol.varint import encode_varint

LIMIT = 1_000_000

contents = st.lists(
    st.tuples(st.none() | st.binary(max_size=100), st.none() | st.binary(max_size=100)),
    min_size=1,
    max_size=8,
)


def records_of(items: list[tuple[bytes | None, bytes | None]]) -> list[Record]:
    return [Record(3 * i, 1000 - i, key, value, (("h", b"x"),)) for i, (key, value) in enumerate(items)]


@given(items=contents, codec=st.sampled_from(Compression))
def test_spans_cut_the_payload_into_its_records(
    items: list[tuple[bytes | None, bytes | None]], codec: Compression
) -> None:
    records = records_of(items)
    header, payload = open_batch(encode_batch(records, codec=codec), LIMIT)
    spans = list(record_spans(header, payload))
    assert b"".join(payload[span.start : span.end] for span in spans) == payload
    assert [(span.offset_delta, span.key, span.has_value) for span in spans] == [
        (record.offset, record.key, record.value is not None) for record in records
    ]
    assert [header.base_timestamp + span.timestamp_delta for span in spans] == [
        record.timestamp_ms for record in records
    ]


@given(items=contents, base=st.integers(-(2**50), 2**50))
def test_records_move_to_another_base_timestamp_unchanged(
    items: list[tuple[bytes | None, bytes | None]], base: int
) -> None:
    records = records_of(items)
    header, payload = open_batch(encode_batch(records), LIMIT)
    shift = header.base_timestamp - base
    moved = b"".join(
        with_timestamp_delta(payload, span, span.timestamp_delta + shift)
        for span in record_spans(header, payload)
    )
    assert decode_records(seal_batch(header._replace(base_timestamp=base), moved), LIMIT) == records


@given(items=contents, at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_damage_raises_nothing_but_invalid_records(
    items: list[tuple[bytes | None, bytes | None]], at: int, byte: int, cut: int
) -> None:
    batch = encode_batch(records_of(items))
    payload = bytearray(batch[HEADER_SIZE:])
    payload[at % len(payload)] = byte
    with contextlib.suppress(InvalidRecordsError):
        list(record_spans(read_header(batch), bytes(payload[: cut % len(payload) + 1])))


def _check_keyed(batch: bytes) -> None:
    header, pieces = unpack_batch(batch, LIMIT)
    assert b"".join(keyed_windows(header, pieces)) == open_batch(batch, LIMIT)[1]


def test_a_compacted_topic_takes_keyed_records_only() -> None:
    _check_keyed(encode_batch([Record(0, 0, b"", b"v"), Record(1, 0, b"k", None)], codec=Compression.LZ4))
    with pytest.raises(InvalidRecordsError, match="record 1 has no key"):
        _check_keyed(encode_batch([Record(0, 0, b"k", b"v"), Record(1, 0, None, b"v")]))


def test_records_without_a_key_are_named_up_to_a_thousand() -> None:
    keys = [None if number % 2 else b"k" for number in range(3000)]
    batch = encode_batch([Record(number, 0, key, b"v") for number, key in enumerate(keys)])
    with pytest.raises(InvalidRecordsError) as refused:
        _check_keyed(batch)
    assert [each.batch_index for each in refused.value.records] == list(range(1, 2000, 2))


@given(items=contents, size=st.integers(1, 70))
def test_times_are_read_from_pieces_of_any_size(
    items: list[tuple[bytes | None, bytes | None]], size: int
) -> None:
    records = records_of(items)
    header, payload = open_batch(encode_batch(records), LIMIT)
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    times = [(each.timestamp_ms, each.offset) for each in records]
    assert list(record_times(header, pieces)) == times
    with pytest.raises(InvalidRecordsError):
        list(record_times(header._replace(record_count=len(records) + 1), pieces))
    # Where the log said when it took them, that counts.
    by_log = header._replace(attributes=header.attributes | 8, max_timestamp=5)
    assert list(record_times(by_log, pieces)) == [(5, offset) for _, offset in times]


def test_times_take_the_same_memory_whatever_the_size_of_a_record() -> None:
    header = read_header(memoryview(encode_batch([Record(0, 1000, None, b""), Record(1, 1005, None, b"")])))
    head, block = bytes(1) + encode_varint(0) + encode_varint(0), bytes(1 << 16)
    kept: list[int] = []

    def pieces() -> Iterator[bytes]:
        yield encode_varint(len(head) + 64 * len(block)) + head
        for _ in range(64):
            yield block
            kept.append(sys.getrefcount(block))
        yield encode_varint(3) + bytes(1) + encode_varint(5) + encode_varint(1)

    assert list(record_times(header, pieces())) == [(1000, 0), (1005, 1)]
    assert len(kept) == 64
    # The next piece is asked for with the last one at hand, and none before it.
    assert max(kept) == kept[0]
