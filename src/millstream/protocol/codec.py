"""Codec of all messages that are not performance-critical, from kio's description of every version.

Handlers know only the newest shape of a message. Requests of older versions are converted to it (missing fields get
their defaults, replaced fields are translated); replies are written at the requested version (fields that it lacks are
left out). kio's schemas are imported one message at a time: all of them would take 1.7 s and 50 MB at start.
"""

import datetime
import importlib
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from millstream.protocol.api import Api
from millstream.protocol.limits import LIMITS
from millstream.protocol.message_reader import presented_class, values_reader
from millstream.protocol.message_shape import shape_of
from millstream.protocol.message_writer import counter_of, reply_writer_of, writer_of
from millstream.protocol.wire import MalformedRequest, Reader


def import_kio() -> None:
    """Import kio without hypothesis, which it would import where installed, at the cost of 300 ms."""
    if "kio" in sys.modules or "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]


@cache
def message_class(name: str, version: int, kind: str) -> Any:
    """The dataclass of a message, for example ("create_topics", 7, "request")."""
    import_kio()
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    wanted = name.replace("_", "") + kind
    for attribute, value in vars(module).items():
        if attribute.lower() == wanted and isinstance(value, type):
            return value
    raise LookupError(f"kio has no {kind} of {name} version {version}")


Message = Any
"""A request or reply that kio describes, or a part of one; its fields are known only at run time."""
Values = dict[str, Any]


def decode_request(api: Api, version: int, payload: memoryview) -> Any:
    """The request's body in the newest shape; it does not refer to `payload`."""
    message = message_class(api.name, version, "request")
    newest = message_class(api.name, api.max_version, "request")
    limit = LIMITS[api.name]
    reader = Reader(payload, flexible=message.__flexible__, elements=limit.elements, arrays=limit.arrays)
    try:
        values = values_reader(message, newest)(reader)
    except MalformedRequest as error:
        raise MalformedRequest(f"{api.name} version {version} cannot be decoded: {error}") from None
    except OverflowError:
        raise MalformedRequest(f"{api.name} version {version} holds a time out of range") from None
    if reader.position != len(payload):
        unread = len(payload) - reader.position
        raise MalformedRequest(f"{api.name} version {version} leaves {unread} bytes unread")
    lift = _LIFTS.get(api.name)
    if lift is not None:
        lift(values, newest)
    return presented_class(message, newest)(**values)


def encode_response(api: Api, version: int, response: Any) -> bytes:
    """Takes the newest version's class, or anything that has its attributes."""
    out = bytearray()
    writer_of(message_class(api.name, version, "response"))(out, response)
    return bytes(out)


def encode_reply(api: Api, version: int, response: Any, throttle_ms: int) -> bytes:
    """As `encode_response`, with the throttle time, if the version has a field for it."""
    out = bytearray()
    throttle_time = datetime.timedelta(milliseconds=throttle_ms)
    reply_writer_of(message_class(api.name, version, "response"))(out, response, throttle_time)
    return bytes(out)


def count_elements(api: Api, version: int, response: Any, enough: int) -> int:
    """The number of elements in the reply's arrays, at every depth; stops counting after `enough`."""
    return counter_of(message_class(api.name, version, "response"))(response, enough)


def encode_request(api: Api, version: int, fields: Values) -> bytes:
    """A request with these `fields` and defaults for the rest; dictionaries stand for entities."""
    out = bytearray()
    message = message_class(api.name, version, "request")
    writer_of(message)(out, _filled(message, fields))
    return bytes(out)


def decode_response(api: Api, version: int, payload: memoryview) -> Any:
    message = message_class(api.name, version, "response")
    reader = Reader(payload, flexible=message.__flexible__)
    return presented_class(message, message)(**values_reader(message, message)(reader))


def error_response(api: Api, version: int, code: int, message: str) -> Any:
    """A reply with only an error; None when that version has no field for one."""
    target = message_class(api.name, version, "response")
    arguments = {field.name: field.default for field in shape_of(target)}
    if "error_code" not in arguments:
        return None
    arguments["error_code"] = code
    if "error_message" in arguments:
        arguments["error_message"] = message
    return target(**arguments)


def _entity(message: Any, name: str) -> Any:
    return next(field.entity for field in shape_of(message) if field.name == name)


def _made(entity: Any, values: Values) -> Any:
    """An entity with these values, and defaults for the rest."""
    return entity(**{**{field.name: field.default for field in shape_of(entity)}, **values})


def _filled(entity: Any, fields: Values) -> Any:
    """The values without unknown fields at their defaults; an unknown field with another value is an error."""
    entities = {field.name: field.entity for field in shape_of(entity)}
    known = {name: value for name, value in fields.items() if name in entities or value}
    if unknown := known.keys() - entities:
        raise MalformedRequest(f"{entity.__name__} of this version has no field {min(unknown)}")
    return _made(entity, {name: _filled_value(entities[name], value) for name, value in known.items()})


def _filled_value(entity: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _filled(entity, value)
    if isinstance(value, list | tuple):
        return tuple(_filled_value(entity, each) for each in value)
    return value


def _presented(value: Any, newer: Any) -> Any:
    """Convert an entity of an older version to the shape of a newer one."""
    older: Any = type(value)
    return presented_class(older, newer)(
        **{field.name: getattr(value, field.name) for field in shape_of(older)}
    )


def _lift_delete_topics(values: Values, newest: Any) -> None:
    """Up to version 5 topics were named in a plain list; topic ids came later."""
    if "topic_names" in values:
        topic = _entity(newest, "topics")
        values["topics"] = tuple(_made(topic, {"name": name}) for name in values["topic_names"])


def _lift_find_coordinator(values: Values, _: Any) -> None:
    """Up to version 3 a request asked for one key."""
    if "key" in values:
        values["coordinator_keys"] = (values["key"],)


def _lift_offset_fetch(values: Values, newest: Any) -> None:
    """Up to version 7 a request asked for one group."""
    if "group_id" not in values:
        return
    group = _entity(newest, "groups")
    topic = _entity(group, "topics")
    topics = values["topics"]
    if topics is not None:
        topics = tuple(_presented(each, topic) for each in topics)
    values["groups"] = (_made(group, {"group_id": values["group_id"], "topics": topics}),)


def _lift_leave_group(values: Values, newest: Any) -> None:
    """Up to version 2 one member left at a time."""
    if "member_id" in values:
        values["members"] = (_made(_entity(newest, "members"), {"member_id": values["member_id"]}),)


_LIFTS: dict[str, Callable[[Values, Any], None]] = {
    "delete_topics": _lift_delete_topics,
    "find_coordinator": _lift_find_coordinator,
    "leave_group": _lift_leave_group,
    "offset_fetch": _lift_offset_fetch,
}
