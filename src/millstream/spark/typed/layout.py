"""The columns of a frame and the decoding of keys and values, from a read's options and schema, which are checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.spark.errors import OptionError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
HEADERS = ArrayType(_HEADER)
FRAME = StructType(
    [
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)
"""A message frame (`protocol.message_frame`) as a column."""

_FIXED: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
    "serializedValue": BinaryType(),
}
_ON_REQUEST = ("headers", "serializedValue")
FORMAT_OPTIONS = ("value.format", "key.format", "mode", "columnNameOfCorruptRecord")


class Format(StrEnum):
    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    MSGPACK = "msgpack"
    FRAME = "frame"


class Mode(StrEnum):
    """The treatment of a record whose key or value does not fit."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a frame in order; the columns key and value are decoded by their formats."""

    columns: tuple[Column, ...]
    key_format: Format
    value_format: Format
    mode: Mode
    corrupt_column: str | None
    """The column, if any, in which PERMISSIVE puts the bytes of a value that does not fit."""

    @property
    def is_plain(self) -> bool:
        """Whether the frame has the columns of Spark's Kafka source."""
        names = tuple(column.name for column in self.columns)
        untyped = (self.key_format, self.value_format) == (Format.BINARY, Format.BINARY)
        return untyped and names in (tuple(_names(headers=False)), tuple(_names(headers=True)))

    @property
    def has_headers(self) -> bool:
        return any(column.name == "headers" for column in self.columns)


def default_schema(given: Mapping[str, str], *, headers: bool) -> StructType:
    """The columns of a read without `schema()`."""
    options = {name.lower(): value for name, value in given.items()}
    types = dict(_FIXED)
    for column in ("key", "value"):
        found = _format(options, column)
        if found in (Format.JSON, Format.MSGPACK):
            raise OptionError(
                f"option {column}.format is {found}, so the columns and their types have to be named: "
                f"schema('{column} struct<a: int, b: string>, topic string, partition int, offset bigint')"
            )
        types[column] = {Format.STRING: StringType(), Format.FRAME: FRAME}.get(found, BinaryType())
    return StructType([StructField(name, types[name]) for name in _names(headers=headers)])


def layout_of(given: Mapping[str, str], schema: StructType) -> Layout:
    options = {name.lower(): value for name, value in given.items()}
    formats = {column: _format(options, column) for column in ("key", "value")}
    corrupt = options.get("columnnameofcorruptrecord", "_corrupt_record")
    for field in schema.fields:
        _check_column(field, formats, corrupt)
    names = schema.fieldNames()
    return Layout(
        columns=tuple(Column(field.name, field.dataType) for field in schema.fields),
        key_format=formats["key"],
        value_format=formats["value"],
        mode=_mode(options),
        corrupt_column=corrupt if corrupt in names else None,
    )


def _names(*, headers: bool) -> list[str]:
    return [name for name in _FIXED if name not in _ON_REQUEST or (headers and name == "headers")]


def _check_column(field: StructField, formats: Mapping[str, Format], corrupt: str) -> None:
    name = field.name
    if name == corrupt:
        if field.dataType not in (BinaryType(), StringType()):
            raise OptionError(
                f"the column {name} has the bytes of records that do not fit: it is binary or string"
            )
        return
    if name not in _FIXED:
        known = ", ".join(_FIXED)
        raise OptionError(
            f"schema() names the frame's columns, and {name} is none of them ({known}); the fields of a JSON record go "
            "into the type of value: value struct<...>"
        )
    if name in formats and not field.nullable:
        raise OptionError(f"the column {name} may be null: the schema must not say otherwise")
    expected = _FIXED[name]
    match formats.get(name):
        case Format.JSON | Format.MSGPACK:
            return
        case Format.STRING:
            expected = StringType()
        case Format.FRAME:
            expected = FRAME
    if field.dataType != expected:
        hint = f"; is the option {name}.format missing?" if name in formats else ""
        raise OptionError(
            f"the column {name} has the type {expected.simpleString()}, not {field.dataType.simpleString()}{hint}"
        )


def _format(options: Mapping[str, str], column: str) -> Format:
    text = options.get(f"{column}.format", Format.BINARY).lower()
    try:
        return Format(text)
    except ValueError:
        choices = ", ".join(Format)
        raise OptionError(f"option {column}.format is {text!r}; choose one of {choices}") from None


def _mode(options: Mapping[str, str]) -> Mode:
    text = options.get("mode", Mode.PERMISSIVE).upper()
    try:
        return Mode(text)
    except ValueError:
        raise OptionError(f"option mode is {text!r}; choose one of {', '.join(Mode)}") from None
