"""The column decoder against `protocol.records`, which decodes one record at a time."""

import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the `spark` extra is not installed")
pytest.importorskip("pyarrow", reason="the `spark` extra is not installed")

from millstream.protocol.compression import Compression
from millstream.protocol.records import (
    InvalidRecordsError,
    Record,
    decode_records,
    encode_batch,
    open_batch,
    seal_batch,
)
from millstream.spark.columns import SCHEMA, SCHEMA_WITH_HEADERS, BadRecords, Columns, OpenBatch

LIMIT = 10_000_000
ANY = (0, 2**63 - 1)
# Python's dates end with the year 9999.
LATEST_DATE_MS = 253_402_300_799_000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

nullable_bytes = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn, least: int = 1) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for gap in draw(st.lists(st.integers(0, 20_000), min_size=least, max_size=20)):
        offset += gap
        timestamp = draw(st.integers(-1, LATEST_DATE_MS))
        headers = tuple(draw(header_lists))
        records.append(Record(offset, timestamp, draw(nullable_bytes), draw(nullable_bytes), headers))
        offset += 1
    return records


def opened(batch: bytes) -> OpenBatch:
    header, payload = open_batch(batch, LIMIT)
    return OpenBatch(header, np.frombuffer(payload, np.uint8), 0, len(payload))


def rows(
    batches: list[OpenBatch], low: int = ANY[0], high: int = ANY[1], headers: bool = True
) -> list[dict[str, Any]]:
    made = Columns("a topic", 3, include_headers=headers).build(batches, low, high)
    made.validate(full=True)
    assert made.schema.equals(SCHEMA_WITH_HEADERS if headers else SCHEMA)
    return made.to_pylist()


def expected(record: Record, timestamp_type: int = 0) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "a topic",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + datetime.timedelta(milliseconds=record.timestamp_ms),
        "timestampType": timestamp_type,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=50)
@given(records=record_lists())
def test_a_batch_becomes_the_rows_of_its_records(codec: Compression, records: list[Record]) -> None:
    batch = encode_batch(records, codec=codec, base_offset=records[0].offset)
    assert rows([opened(batch)]) == [expected(record) for record in records]


@settings(max_examples=50)
@given(first=record_lists(), second=record_lists(), data=st.data())
def test_several_batches_make_one_and_only_the_range_counts(
    first: list[Record], second: list[Record], data: st.DataObject
) -> None:
    offsets = [record.offset for record in first + second]
    low = data.draw(st.integers(min(offsets), max(offsets) + 1))
    high = data.draw(st.integers(low, max(offsets) + 1))
    batches = [
        opened(encode_batch(first, base_offset=first[0].offset, codec=Compression.LZ4)),
        opened(encode_batch(second, base_offset=second[0].offset)),
    ]
    wanted = [expected(record) for record in first + second if low <= record.offset < high]
    assert rows(batches, low, high) == wanted


def test_headers_are_left_out_unless_asked_for() -> None:
    batch = encode_batch([Record(0, 0, b"k", b"v", (("h", b"x"),))])
    assert "headers" not in rows([opened(batch)], headers=False)[0]


def test_log_append_time_is_the_batchs_for_all_records() -> None:
    records = [Record(0, 1000, None, b"a"), Record(1, 5000, None, b"b")]
    found = rows([opened(encode_batch(records, timestamp_type=1))])
    assert [row["timestamp"] for row in found] == [EPOCH + datetime.timedelta(seconds=5)] * 2
    assert [row["timestampType"] for row in found] == [1, 1]


def test_a_time_beyond_sparks_range_is_the_furthest_there_is() -> None:
    batch = encode_batch([Record(0, 2**62, None, b"")])
    made = Columns("t", 0, include_headers=False).build([opened(batch)], *ANY)
    assert made.column("timestamp").cast("int64").to_pylist() == [(2**63 - 1) // 1000 * 1000]


def test_a_header_name_that_is_not_utf8_gets_replacement_characters() -> None:
    batch = encode_batch(
        [Record(0, 0, None, None, (("né", b"1"),)), Record(1, 0, None, None, (("ok", None),))]
    )
    header, payload = open_batch(batch, LIMIT)
    broken = seal_batch(header, payload.replace("né".encode(), b"n\xff\xff"))
    assert [row["headers"][0]["key"] for row in rows([opened(broken)])] == ["n\ufffd\ufffd", "ok"]


def test_no_batches_make_no_rows() -> None:
    assert rows([]) == []


@settings(max_examples=300)
@given(records=record_lists(), data=st.data())
def test_damage_is_refused_where_the_other_decoder_refuses_it(
    records: list[Record], data: st.DataObject
) -> None:
    header, payload = open_batch(encode_batch(records, base_offset=records[0].offset), LIMIT)
    damaged = bytearray(payload)
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), min_size=1, max_size=3)):
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    batch = seal_batch(header, bytes(damaged[:cut]))
    try:
        good = decode_records(batch, LIMIT)
    except InvalidRecordsError:
        with pytest.raises(BadRecords):
            Columns("t", 0, include_headers=True).build([opened(batch)], *ANY)
    else:
        built = Columns("t", 0, include_headers=True).build([opened(batch)], *ANY)
        assert built.column("offset").to_pylist() == [record.offset for record in good]
        assert built.column("value").to_pylist() == [record.value for record in good]
