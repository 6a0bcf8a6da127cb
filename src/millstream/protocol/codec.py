"""Requests and replies that are not hot: decoded by kio, presented to handlers in the newest version, encoded here.

A handler knows one shape of a message, the newest. A request of an older version is lifted to it (fields that did not
exist get their defaults); a reply is written at the version that was asked for (fields that do not exist there are left
out). Encoding is ours because kio's takes 30 us for the smallest reply.
"""

import datetime
import struct
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any

from millstream.protocol.api import Api
from millstream.protocol.kio_loader import message_class, message_reader
from millstream.protocol.wire import NULL_UUID, MalformedRequest, array_length, uvarint

Write = Callable[[bytearray, Any], None]

_ZERO: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": uuid.UUID(int=0),
    "timedelta_i32": datetime.timedelta(),
    "timedelta_i64": datetime.timedelta(),
    "datetime_i64": datetime.datetime.fromtimestamp(0, datetime.UTC),
    "float64": 0.0,
}
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


def decode_request(api: Api, version: int, payload: memoryview) -> Any:
    """The request's body as kio's class of the newest version."""
    # kio keeps nothing of the buffer, but asks for bytes.
    body = bytes(payload)
    try:
        request, read = message_reader(api.name, version)(body, 0)
    except Exception as error:  # noqa: BLE001 - kio raises what it likes on bytes that are no request
        raise MalformedRequest(f"{api.name} version {version} cannot be decoded: {error}") from None
    if read != len(body):
        raise MalformedRequest(f"{api.name} version {version} leaves {len(body) - read} bytes unread")
    if version == api.max_version:
        return request
    return _lift(request, message_class(api.name, api.max_version, "request"))


def encode_response(api: Api, version: int, response: Any) -> bytes:
    out = bytearray()
    _writer(message_class(api.name, version, "response"))(out, response)
    return bytes(out)


def _lift(value: Any, target: Any) -> Any:
    arguments = {}
    for name, nested, default in _shape(target):
        if name == "topics" and hasattr(value, "topic_names"):
            # DeleteTopics named its topics in a plain list before it knew topic ids.
            arguments[name] = tuple(
                nested(name=topic, topic_id=None) for topic in value.topic_names if nested
            )
        elif not hasattr(value, name):
            arguments[name] = default
        elif nested is None:
            arguments[name] = getattr(value, name)
        else:
            arguments[name] = _lift_nested(getattr(value, name), nested)
    return target(**arguments)


def _lift_nested(value: Any, target: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_lift(element, target) for element in value)
    return None if value is None else _lift(value, target)


@cache
def _shape(target: Any) -> list[tuple[str, Any, Any]]:
    """Each field's name, the class of its elements if it has fields of its own, and its default."""
    shape = []
    for item in fields(target):
        element, is_array, nullable = _classify(item.type)
        if item.default is not MISSING:
            default = item.default
        elif nullable:
            default = None
        else:
            default = () if is_array else _ZERO.get(item.metadata.get("kafka_type", ""), 0)
        shape.append((item.name, element if is_dataclass(element) else None, default))
    return shape


def _classify(annotation: Any) -> tuple[Any, bool, bool]:
    """Element type, whether it is an array, whether it may be null."""
    nullable = False
    if isinstance(annotation, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
        nullable = True
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)[0], True, nullable
    return annotation, False, nullable


@cache
def _writer(target: Any) -> Write:
    flexible: bool = target.__flexible__
    plain: list[tuple[str, Write, Any]] = []
    tagged: list[tuple[int, str, Write, Any]] = []
    for item, (name, _, default) in zip(fields(target), _shape(target), strict=True):
        write = _field_writer(item, flexible)
        tag = item.metadata.get("tag")
        if tag is None:
            plain.append((name, write, default))
        else:
            tagged.append((tag, name, write, default))
    tagged.sort(key=lambda entry: entry[0])

    def write_entity(out: bytearray, value: Any) -> None:
        for name, write, default in plain:
            write(out, getattr(value, name, default))
        if flexible:
            _write_tags(out, value, tagged)

    return write_entity


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


def _field_writer(item: Any, flexible: bool) -> Write:
    element, is_array, nullable = _classify(item.type)
    if is_dataclass(element):
        assert isinstance(element, type)
        write = _writer(element)
        if not is_array:
            return _nullable_entity(write) if nullable else write
    else:
        write = _primitive_writer(item.metadata["kafka_type"], flexible)
    return _array_writer(write, flexible) if is_array else write


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


def error_response(api: Api, code: int, message: str) -> Any:
    """A reply of the newest version that carries nothing but an error; None when it has no field for one."""
    target = message_class(api.name, api.max_version, "response")
    arguments = {name: default for name, _, default in _shape(target)}
    if "error_code" not in arguments:
        return None
    arguments["error_code"] = code
    if "error_message" in arguments:
        arguments["error_message"] = message
    return target(**arguments)
