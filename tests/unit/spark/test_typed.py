"""Typed keys and values: what the schema may say, what is decoded, and what becomes of records that do not fit."""

import logging
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.protocol.message_frame import MessageFrame, encode_frame
from millstream.spark.errors import OptionError
from millstream.spark.typed.layout import FRAME, Layout, default_schema, layout_of
from millstream.spark.typed.rows import MalformedRecord, TypedRows

POINT = StructType([StructField("id", LongType()), StructField("name", StringType())])
JSON = {"value.format": "json"}


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def records(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    rows = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys or [b"key"] * rows, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["events"] * rows),
            "partition": pa.array([3] * rows, pa.int32()),
            "offset": pa.array(range(70, 70 + rows), pa.int64()),
        }
    )


def typed(options: dict[str, str], schema: StructType, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    made = TypedRows(layout_of(options, schema)).typed(batch)
    made.validate(full=True)
    rows: list[dict[str, Any]] = made.to_pylist()
    return rows


def values(options: dict[str, str], kind: DataType, raw: Sequence[bytes | None]) -> list[Any]:
    return [row["value"] for row in typed(options, columns(value=kind), records(raw))]


def test_every_type_is_decoded() -> None:
    kind = columns(
        flag=BooleanType(), tiny=ByteType(), number=DoubleType(), day=DateType(), time=TimestampType(),
        data=BinaryType(), names=ArrayType(StringType()), counts=MapType(StringType(), LongType()),
        parts=ArrayType(POINT),
    )  # fmt: skip
    raw = (
        b'{"flag": true, "tiny": -128, "number": 7, "day": "2026-03-01", "time": "2026-03-01T13:00:00+01:00",'
        b'"data": "aGk=", "names": ["a", null], "counts": {"x": 1, "y": null}, "parts": [{"id": 1}, null]}'
    )
    assert values(JSON, kind, [raw, b'{"names": [], "counts": {}, "parts": []}', b"{}"]) == [
        {
            "flag": True, "tiny": -128, "number": 7.0, "day": date(2026, 3, 1),
            "time": datetime(2026, 3, 1, 12, tzinfo=UTC), "data": b"hi", "names": ["a", None],
            "counts": [("x", 1), ("y", None)], "parts": [{"id": 1, "name": None}, None],
        },
        {**dict.fromkeys(kind.fieldNames()), "names": [], "counts": [], "parts": []},
        dict.fromkeys(kind.fieldNames()),
    ]  # fmt: skip


def test_a_bad_record_is_null_beside_its_bytes_and_harms_no_other() -> None:
    schema = columns(
        value=POINT, _corrupt_record=BinaryType(), offset=LongType(), serializedValue=BinaryType()
    )
    assert typed(JSON, schema, records([b'{"id": 1}', b'{"id": "x"}', None, b'{"id": 2'])) == [
        {
            "value": {"id": 1, "name": None},
            "_corrupt_record": None,
            "offset": 70,
            "serializedValue": b'{"id": 1}',
        },
        {"value": None, "_corrupt_record": b'{"id": "x"}', "offset": 71, "serializedValue": b'{"id": "x"}'},
        {"value": None, "_corrupt_record": None, "offset": 72, "serializedValue": None},
        {"value": None, "_corrupt_record": b'{"id": 2', "offset": 73, "serializedValue": b'{"id": 2'},
    ]
    named = columns(value=POINT, rubbish=StringType())
    options = {**JSON, "columnNameOfCorruptRecord": "rubbish"}
    assert typed(options, named, records([b"\xff"])) == [{"value": None, "rubbish": "�"}]


def test_malformed_records_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    schema = columns(value=POINT, offset=LongType())
    rows = TypedRows(layout_of({**JSON, "mode": "dropMalformed"}, schema))
    with caplog.at_level(logging.WARNING, "millstream.spark"):
        made = list(rows.of(iter([records([b"{}", b"[]"]), records([b"rubbish", b"{}"])])))
    assert [batch["offset"].to_pylist() for batch in made] == [[70], [71]]
    assert "dropped 2 malformed records" in caplog.text
    assert "the value at offset 71 of events-3" in caplog.text


def test_failfast_says_where_and_why() -> None:
    schema = columns(value=POINT)
    with pytest.raises(MalformedRecord, match=r"value at offset 71 of events-3 .* Expected `int .*`\$\.id`"):
        typed({**JSON, "mode": "FAILFAST"}, schema, records([b"{}", b'{"id": "x"}']))
    with pytest.raises(MalformedRecord, match="key at offset 70 of events-3"):
        typed(
            {"key.format": "string", "mode": "FAILFAST"}, columns(key=StringType()), records([b""], [b"\xff"])
        )


def test_a_field_that_may_not_be_null_must_be_there() -> None:
    kind = StructType([StructField("id", LongType(), nullable=False), StructField("name", StringType())])
    assert values(JSON, kind, [b'{"id": 1}', b'{"name": "x"}', b'{"id": null}']) == [
        {"id": 1, "name": None},
        None,
        None,
    ]


def test_names_of_fields_may_be_anything() -> None:
    kind = StructType([StructField("with space", LongType()), StructField("class", StringType())])
    assert values(JSON, kind, [b'{"with space": 1, "class": "x"}']) == [{"with space": 1, "class": "x"}]


def test_text_and_message_packs() -> None:
    assert values({"value.format": "string"}, StringType(), [b"caf\xc3\xa9", None, b"\xff"]) == [
        "café",
        None,
        None,
    ]
    time = datetime(2026, 3, 1, 12, tzinfo=UTC)
    packed = msgspec.msgpack.encode({"time": time, "data": b"\x00", "id": 5})
    kind = columns(time=TimestampType(), data=BinaryType(), id=IntegerType())
    assert values({"value.format": "msgpack"}, kind, [packed, packed[:-1], b""]) == [
        {"time": time, "data": b"\x00", "id": 5}, None, None,
    ]  # fmt: skip
    assert values({"value.format": "msgpack"}, LongType(), [msgspec.msgpack.encode(7)]) == [7]


def test_message_frames() -> None:
    frame = MessageFrame(1_772_366_400_000, b"k", None, (("h", b"1"),))
    data = encode_frame(frame)
    beyond = encode_frame(MessageFrame(2**62, b"k", None))
    assert values({"value.format": "frame"}, FRAME, [data, data[:-1], beyond]) == [
        {
            "timestamp": datetime(2026, 3, 1, 12, tzinfo=UTC), "key": b"k", "value": None,
            "headers": [{"key": "h", "value": b"1"}],
        },
        None,
        None,
    ]  # fmt: skip


@pytest.mark.parametrize("depth", [10, 100_000])
def test_deep_nesting_ends_nothing(depth: int) -> None:
    [value] = values(JSON, POINT, [b'{"x":' + b"[" * depth + b"]" * depth + b"}"])
    assert value == ({"id": None, "name": None} if depth < 100 else None)


def test_without_a_schema_the_columns_follow_the_formats() -> None:
    schema = default_schema({"value.format": "frame", "key.format": "string"}, headers=True)
    assert (schema["value"].dataType, schema["key"].dataType) == (FRAME, StringType())
    assert "headers" in schema.fieldNames()
    with pytest.raises(OptionError, match="have to be named"):
        default_schema(JSON, headers=False)


def layout(schema: StructType, **options: str) -> Layout:
    return layout_of({name.replace("_", "."): value for name, value in options.items()}, schema)


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (columns(id=LongType()), {"value_format": "json"}, "go into the type of value"),
        (columns(value=POINT), {}, r"is the option value\.format missing"),
        (columns(value=StringType()), {"value_format": "frame"}, "has the type struct"),
        (columns(offset=IntegerType()), {}, "bigint, not int"),
        (columns(value=POINT, _corrupt_record=LongType()), {"value_format": "json"}, "binary or string"),
        (StructType([StructField("value", POINT, nullable=False)]), {"value_format": "json"}, "may be null"),
        (columns(value=BinaryType()), {"value_format": "avro"}, "choose one of"),
        (columns(value=BinaryType()), {"mode": "LENIENT"}, "choose one of PERMISSIVE"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    schema: StructType, options: dict[str, str], told: str
) -> None:
    with pytest.raises(OptionError, match=told):
        layout(schema, **options)


@pytest.mark.parametrize("kind", [DecimalType(10, 2), MapType(LongType(), StringType())])
def test_types_that_cannot_be_decoded_are_named(kind: DataType) -> None:
    with pytest.raises(OptionError, match=r"value\.odd"):
        TypedRows(layout_of(JSON, columns(value=columns(odd=kind))))


def test_the_plain_layout_is_recognised() -> None:
    assert layout_of({}, default_schema({}, headers=True)).is_plain
    assert not layout_of({}, columns(offset=LongType())).is_plain
