"""Writes any message from kio's description of it. kio's own writer takes 30 us for the smallest reply."""

import datetime
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from millstream.protocol.message_shape import FieldShape, shape_of
from millstream.protocol.wire import NULL_UUID, array_length, uvarint

Write = Callable[[bytearray, Any], None]
WriteReply = Callable[[bytearray, Any, datetime.timedelta], None]

_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "int64": ">q",
    "error_code": ">h",
    "float64": ">d",
}
_MILLISECOND = datetime.timedelta(milliseconds=1)


@cache
def writer_of(message: Any) -> Write:
    """A writer of objects with the message's attributes; missing ones are written as their defaults."""
    flexible: bool = message.__flexible__
    plain, tagged = _field_writers(message)

    def write_entity(out: bytearray, value: Any) -> None:
        for name, write, default in plain:
            write(out, getattr(value, name, default))
        if flexible:
            _write_tags(out, value, tagged)

    return write_entity


@cache
def reply_writer_of(message: Any) -> WriteReply:
    """As `writer_of`, with the throttle time as an argument instead of an attribute."""
    flexible: bool = message.__flexible__
    plain, tagged = _field_writers(message)

    def write_reply(out: bytearray, value: Any, throttle_time: datetime.timedelta) -> None:
        for name, write, default in plain:
            write(out, throttle_time if name == "throttle_time" else getattr(value, name, default))
        if flexible:
            _write_tags(out, value, tagged)

    return write_reply


def _field_writers(message: Any) -> tuple[list[tuple[str, Write, Any]], list[tuple[int, str, Write, Any]]]:
    """Writers of the fields in order, and of tagged fields in the order of their tags."""
    flexible: bool = message.__flexible__
    shape = shape_of(message)
    plain = [
        (field.name, _field_writer(field, flexible), field.default) for field in shape if field.tag is None
    ]
    tagged = [
        (field.tag, field.name, _field_writer(field, flexible), field.default)
        for field in shape
        if field.tag is not None
    ]
    return plain, sorted(tagged, key=lambda entry: entry[0])


@cache
def counter_of(message: Any) -> Callable[[Any, int], int]:
    """A counter of the elements in an object's arrays, which stops after a limit."""
    arrays = [
        (field.name, counter_of(field.entity) if field.entity else None)
        for field in shape_of(message)
        if field.is_array
    ]

    def count(value: Any, enough: int) -> int:
        found = 0
        for name, inner in arrays:
            elements = getattr(value, name, None) or ()
            found += len(elements)
            if inner is not None:
                for each in elements:
                    if found > enough:
                        return found
                    found += inner(each, enough - found)
        return found

    return count


def _write_tags(out: bytearray, value: Any, tagged: list[tuple[int, str, Write, Any]]) -> None:
    present = []
    for tag, name, write, default in tagged:
        field_value = getattr(value, name, default)
        if field_value != default:
            body = bytearray()
            write(body, field_value)
            present.append((tag, body))
    out += uvarint(len(present))
    for tag, body in present:
        out += uvarint(tag)
        out += uvarint(len(body))
        out += body


def _field_writer(field: FieldShape, flexible: bool) -> Write:
    write = writer_of(field.entity) if field.entity else _primitive_writer(field.kafka_type, flexible)
    if field.is_array:
        write = _array_writer(write, flexible)
    elif field.entity:
        return _nullable_entity(write) if field.nullable else write
    return write if field.nullable else _never_null(write, field)


def _never_null(write: Write, field: FieldShape) -> Write:
    """Write null as empty in versions before the field became nullable."""
    if not (field.is_array or field.kafka_type in ("string", "bytes", "records")):
        return write
    empty: Any = () if field.is_array else "" if field.kafka_type == "string" else b""
    return lambda out, value: write(out, empty if value is None else value)


def _nullable_entity(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            write(out, value)

    return write_nullable


def _array_writer(write: Write, flexible: bool) -> Write:
    def write_array(out: bytearray, values: Any) -> None:
        out += array_length(-1 if values is None else len(values), flexible=flexible)
        for value in values or ():
            write(out, value)

    return write_array


def _primitive_writer(kind: str, flexible: bool) -> Write:
    if kind in _NUMBERS:
        return _number_writer(_NUMBERS[kind])
    if kind == "string":
        return _sized_writer(flexible, ">h", str.encode)
    if kind in ("bytes", "records"):
        return _sized_writer(flexible, ">i", bytes)
    if kind == "bool":
        return lambda out, value: out.append(1 if value else 0)
    if kind == "uuid":
        return lambda out, value: out.extend(NULL_UUID if value is None else value.bytes)
    if kind in ("timedelta_i32", "timedelta_i64"):
        pack = struct.Struct(">i" if kind.endswith("32") else ">q").pack
        return lambda out, value: out.extend(pack(value // _MILLISECOND))
    if kind == "datetime_i64":
        pack = struct.Struct(">q").pack
        return lambda out, value: out.extend(pack(-1 if value is None else round(value.timestamp() * 1000)))
    raise LookupError(f"kio describes a field of the unknown type {kind}")


def _number_writer(layout: str) -> Write:
    pack = struct.Struct(layout).pack
    return lambda out, value: out.extend(pack(value))


def _sized_writer(flexible: bool, layout: str, encode: Callable[[Any], bytes]) -> Write:
    pack = struct.Struct(layout).pack
    null = b"\0" if flexible else pack(-1)

    def write_sized(out: bytearray, value: Any) -> None:
        if value is None:
            out += null
            return
        data = encode(value)
        out += uvarint(len(data) + 1) if flexible else pack(len(data))
        out += data

    return write_sized
