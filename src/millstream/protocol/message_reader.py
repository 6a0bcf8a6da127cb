"""Reads any message from kio's description of it. kio's own reader trusts an array's length before it has read the
elements: twenty bytes that claim a billion elements would end the process.

A message is read at one version and presented in the shape of another, newer one: fields that the older version lacks
get their defaults, fields that the newer one has dropped are kept as further attributes.
"""

import datetime
import struct
import uuid
from collections.abc import Callable
from dataclasses import field as dataclass_field
from dataclasses import make_dataclass
from functools import cache
from itertools import groupby
from typing import Any

from millstream.protocol.message_shape import FieldShape, shape_of
from millstream.protocol.wire import MalformedRequest, Reader

Read = Callable[[Reader], Any]
Step = Callable[[Reader, dict[str, Any]], None]

_NUMBERS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "error_code": "h",
}
_UNIX_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


@cache
def values_reader(message: Any, presented_as: Any) -> Callable[[Reader], dict[str, Any]]:
    """A reader of `message` that returns the fields of `presented_as`, by name."""
    newer = {field.name: field for field in shape_of(presented_as)}
    shape = shape_of(message)
    steps = _steps([field for field in shape if field.tag is None], newer)
    tagged = {
        field.tag: (field.name, _field_reader(field, newer.get(field.name)))
        for field in shape
        if field.tag is not None
    }
    defaults = {field.name: field.default for field in (*newer.values(), *shape)}
    flexible: bool = message.__flexible__

    def read_values(reader: Reader) -> dict[str, Any]:
        values = defaults.copy()
        for step in steps:
            step(reader, values)
        if flexible:
            _read_tags(reader, tagged, values)
        return values

    return read_values


def _steps(fields: list[FieldShape], newer: dict[str, FieldShape]) -> list[Step]:
    """The steps of a reader; adjacent numbers are read together."""
    steps: list[Step] = []
    for is_number, group in groupby(
        fields, lambda field: field.kafka_type in _NUMBERS and not field.is_array
    ):
        if is_number:
            steps.append(_numbers_step(list(group)))
        else:
            steps += [_field_step(field.name, _field_reader(field, newer.get(field.name))) for field in group]
    return steps


def _numbers_step(fields: list[FieldShape]) -> Step:
    names = [field.name for field in fields]
    layout = struct.Struct(">" + "".join(_NUMBERS[field.kafka_type] for field in fields))

    def read_numbers(reader: Reader, values: dict[str, Any]) -> None:
        values.update(zip(names, reader.unpack(layout), strict=True))

    return read_numbers


def _field_step(name: str, read: Read) -> Step:
    def read_field(reader: Reader, values: dict[str, Any]) -> None:
        values[name] = read(reader)

    return read_field


@cache
def presented_class(message: Any, newer: Any) -> Any:
    """The class that holds the fields of both: the newer one itself where it has them all."""
    names = {field.name for field in shape_of(newer)}
    dropped = [field for field in shape_of(message) if field.name not in names]
    if not dropped:
        return newer
    kept = [
        (field.name, object, dataclass_field(default=field.default)) for field in (*shape_of(newer), *dropped)
    ]
    return make_dataclass(newer.__name__, kept, frozen=True, slots=True, kw_only=True)


@cache
def entity_reader(message: Any, newer: Any) -> Read:
    read_values = values_reader(message, newer)
    presented = presented_class(message, newer)
    return lambda reader: presented(**read_values(reader))


def _read_tags(reader: Reader, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]) -> None:
    for tag, content in reader.tags().items():
        known = tagged.get(tag)
        if known is None:
            continue
        name, read = known
        within = Reader(content, flexible=True, elements=reader.elements_left)
        values[name] = read(within)
        if within.position != len(content):
            raise MalformedRequest(
                f"{name} leaves {len(content) - within.position} bytes of its tagged field unread"
            )


def _field_reader(field: FieldShape, newer: FieldShape | None) -> Read:
    if field.entity:
        read = entity_reader(field.entity, newer.entity if newer and newer.entity else field.entity)
        if not field.is_array:
            return _nullable_entity(read) if field.nullable else read
    else:
        read = _primitive_reader(field.kafka_type, field.nullable and not field.is_array)
    return _array_reader(read, field) if field.is_array else read


def _nullable_entity(read: Read) -> Read:
    return lambda reader: None if reader.i8() < 0 else read(reader)


def _array_reader(read: Read, field: FieldShape) -> Read:
    name, nullable = field.name, field.nullable

    def read_array(reader: Reader) -> tuple[Any, ...] | None:
        count = reader.array_length()
        if reader.arrays:
            reader.check_array(name, count)
        if count >= 0:
            return tuple([read(reader) for _ in range(count)])
        if not nullable:
            raise MalformedRequest(f"{name} is null and must not be")
        return None

    return read_array


def _primitive_reader(kind: str, nullable: bool) -> Read:
    if kind in _NUMBERS:
        return _number_reader(kind)
    if kind == "string":
        return Reader.nullable_string if nullable else Reader.string
    if kind in ("bytes", "records"):
        return _read_nullable_bytes if nullable else _read_bytes
    if kind == "uuid":
        return _read_nullable_uuid if nullable else _read_uuid
    if kind == "timedelta_i32":
        return lambda reader: datetime.timedelta(milliseconds=reader.i32())
    if kind == "timedelta_i64":
        return lambda reader: datetime.timedelta(milliseconds=reader.i64())
    if kind == "datetime_i64":
        return _read_datetime
    raise LookupError(f"kio describes a field of the unknown type {kind}")


def _number_reader(kind: str) -> Read:
    layout = struct.Struct(">" + _NUMBERS[kind])
    return lambda reader: reader.unpack(layout)[0]


def _read_nullable_bytes(reader: Reader) -> bytes | None:
    data = reader.nullable_bytes()
    return None if data is None else bytes(data)


def _read_bytes(reader: Reader) -> bytes:
    data = reader.nullable_bytes()
    if data is None:
        raise MalformedRequest("bytes that must be there are null")
    return bytes(data)


def _read_uuid(reader: Reader) -> uuid.UUID:
    return uuid.UUID(bytes=reader.uuid())


def _read_nullable_uuid(reader: Reader) -> uuid.UUID | None:
    value = _read_uuid(reader)
    return value if value.int else None


def _read_datetime(reader: Reader) -> datetime.datetime | None:
    value = reader.i64()
    return None if value < 0 else _UNIX_EPOCH + datetime.timedelta(milliseconds=value)
