"""The options and columns of a write, checked, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from millstream.spark.errors import OptionError
from millstream.spark.kafka_properties import kafka_properties
from millstream.spark.producer_properties import max_block_s, producer_properties

_TEXT_OR_BYTES = (StringType, BinaryType)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`columns` holds the positions of key, value, headers, topic and partition in a row; other columns are ignored."""

    topic: str | None
    columns: Mapping[str, int]
    properties: Mapping[str, Any] = field(repr=False)
    max_block_s: float


def write_options(given: Mapping[str, str], schema: StructType) -> WriteOptions:
    options = {name.lower(): value for name, value in given.items()}
    properties = kafka_properties(options)
    topic = options.get("topic")
    columns: dict[str, int] = {}
    for index, column in enumerate(schema.fields):
        if column.name in _CHECKS:
            _CHECKS[column.name](column)
            columns[column.name] = index
    if "value" not in columns:
        names = ", ".join(schema.fieldNames()) or "none"
        raise OptionError(
            f"a column 'value' of type string or binary is required to write; there are: {names}"
        )
    if topic is None and "topic" not in columns:
        raise OptionError("where to? Set the option topic, or give the rows a column 'topic'")
    return WriteOptions(topic, columns, producer_properties(properties), max_block_s(properties))


def _text_or_bytes(column: StructField) -> None:
    if not isinstance(column.dataType, _TEXT_OR_BYTES):
        raise _wrong(column, "string or binary; cast it, or use to_json")


def _text(column: StructField) -> None:
    if not isinstance(column.dataType, StringType):
        raise _wrong(column, "string")


def _int(column: StructField) -> None:
    if not isinstance(column.dataType, IntegerType):
        raise _wrong(column, "int")


def _headers(column: StructField) -> None:
    kind: DataType = column.dataType
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = kind.elementType.fields
        if (
            [each.name for each in fields] == ["key", "value"]
            and isinstance(fields[0].dataType, StringType)
            and isinstance(fields[1].dataType, BinaryType)
        ):
            return
    raise _wrong(column, "array<struct<key: string, value: binary>>")


def _wrong(column: StructField, expected: str) -> OptionError:
    return OptionError(f"column '{column.name}' is {column.dataType.simpleString()}; it must be {expected}")


_CHECKS = {
    "key": _text_or_bytes,
    "value": _text_or_bytes,
    "headers": _headers,
    "topic": _text,
    "partition": _int,
}
