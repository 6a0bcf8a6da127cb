"""Maps Spark's types to the Python types that msgspec decodes into, and turns decoded values into Arrow columns.

A Spark struct becomes a msgspec struct made here. A nullable field may also be missing; without a field that is not
nullable, the record does not fit.
"""

import operator
from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import reduce
from itertools import accumulate, chain
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from millstream.spark.errors import OptionError

_PLAIN: dict[type[DataType], Any] = {
    StringType: str,
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    BinaryType: bytes,
    DateType: date,
    TimestampType: Annotated[datetime, msgspec.Meta(tz=True)],
    TimestampNTZType: Annotated[datetime, msgspec.Meta(tz=False)],
}
_INTEGER_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}

Fill = Callable[[Sequence[Any]], pa.Array]
"""Turns values of one type, or None, into an Arrow column."""


class Typed:
    """A Spark type: the type to decode into, and the function that makes a column of decoded values."""

    def __init__(self, kind: DataType) -> None:
        self.arrow = arrow_type(kind)
        self.annotation, self.column = _made(kind, "value")


def arrow_type(kind: DataType) -> pa.DataType:
    """The exact Arrow type that Spark expects from a source."""
    return to_arrow_type(kind, timezone="UTC")


def _made(kind: DataType, path: str) -> tuple[Any, Fill]:
    if isinstance(kind, StructType):
        return _struct(kind, path)
    if isinstance(kind, ArrayType):
        return _list(kind, path)
    if isinstance(kind, MapType):
        return _map(kind, path)
    arrow = _leaf_arrow(kind, path)
    return _leaf(kind), lambda values: pa.array(values, arrow)


def _leaf(kind: DataType) -> Any:
    bits = _INTEGER_BITS.get(type(kind))
    if bits is None:
        return _PLAIN[type(kind)]
    return Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


def _leaf_arrow(kind: DataType, path: str) -> pa.DataType:
    if type(kind) not in _PLAIN and type(kind) not in _INTEGER_BITS:
        raise OptionError(
            f"{path} has the type {kind.simpleString()}, which cannot be decoded; read it as a string and cast it"
        )
    return arrow_type(kind)


def _optional(annotation: Any, nullable: bool) -> Any:
    return reduce(operator.or_, (annotation, None)) if nullable else annotation


def _struct(kind: StructType, path: str) -> tuple[Any, Fill]:
    members = [_made(field.dataType, f"{path}.{field.name}") for field in kind.fields]
    # Spark's names need not be valid in Python.
    names = [f"f{number}" for number in range(len(members))]
    fields: list[Any] = [
        (name, _optional(annotation, True), None) if field.nullable else (name, annotation)
        for name, (annotation, _), field in zip(names, members, kind.fields, strict=True)
    ]
    made = msgspec.defstruct(
        "Record", fields, rename=dict(zip(names, kind.fieldNames(), strict=True)), gc=False, kw_only=True
    )
    fills = [fill for _, fill in members]
    arrow_fields = list(arrow_type(kind))
    nothing = (None,) * len(fills)
    as_tuple = msgspec.structs.astuple

    def column(rows: Sequence[Any]) -> pa.Array:
        missing = [row is None for row in rows] if None in rows else None
        tuples = (
            [nothing if row is None else as_tuple(row) for row in rows] if missing else map(as_tuple, rows)
        )
        columns = list(zip(*tuples, strict=True)) or [()] * len(fills)
        arrays = [fill(values) for fill, values in zip(fills, columns, strict=True)]
        mask = None if missing is None else pa.array(missing, pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=arrow_fields, mask=mask)

    return made, column


def _list(kind: ArrayType, path: str) -> tuple[Any, Fill]:
    annotation, fill = _made(kind.elementType, f"{path}[]")
    arrow = arrow_type(kind)

    def column(rows: Sequence[Any]) -> pa.Array:
        if _is_empty(rows):
            return pa.nulls(len(rows), arrow)
        elements = fill(list(chain.from_iterable(row for row in rows if row is not None)))
        return pa.ListArray.from_arrays(_offsets(rows), elements, type=arrow)

    return list[_optional(annotation, kind.containsNull)], column  # type: ignore[misc]


def _map(kind: MapType, path: str) -> tuple[Any, Fill]:
    if not isinstance(kind.keyType, StringType):
        raise OptionError(f"{path} is a map with keys of {kind.keyType.simpleString()}; they must be strings")
    annotation, fill = _made(kind.valueType, f"{path}{{}}")
    arrow = arrow_type(kind)

    def column(rows: Sequence[Any]) -> pa.Array:
        if _is_empty(rows):
            return pa.nulls(len(rows), arrow)
        known = [row for row in rows if row is not None]
        keys = pa.array(list(chain.from_iterable(known)), pa.string())
        values = fill(list(chain.from_iterable(row.values() for row in known)))
        return pa.MapArray.from_arrays(_offsets(rows), keys, values, type=arrow)

    return dict[str, _optional(annotation, kind.valueContainsNull)], column  # type: ignore[misc]


def _is_empty(rows: Sequence[Any]) -> bool:
    """Whether all values are None, as in a column that these records do not have."""
    return rows.count(None) == len(rows)


def _offsets(rows: Sequence[Any]) -> pa.Array:
    """The start of each row's elements; null for a null row, as Arrow requires."""
    ends = [0, *accumulate(0 if row is None else len(row) for row in rows)]
    begins = [None if row is None else begin for row, begin in zip(rows, ends, strict=False)]
    return pa.array([*begins, ends[-1]], pa.int32())
