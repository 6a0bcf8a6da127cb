"""The fields of a message from kio's classes: types, which are nullable, and defaults."""

import datetime
import types
import typing
import uuid
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple

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


class FieldShape(NamedTuple):
    """`entity` is the class of a field (or of an array's elements) that has fields of its own, else None."""

    name: str
    kafka_type: str
    entity: Any
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any


@cache
def shape_of(message: Any) -> tuple[FieldShape, ...]:
    return tuple(map(_field_shape, fields(message)))


def _field_shape(item: Any) -> FieldShape:
    element, is_array, nullable = _classify(item.type)
    kafka_type = item.metadata.get("kafka_type", "")
    if item.default is not MISSING:
        default = item.default
    elif nullable:
        default = None
    else:
        default = () if is_array else _ZERO.get(kafka_type, 0)
    entity = element if is_dataclass(element) else None
    return FieldShape(item.name, kafka_type, entity, is_array, nullable, item.metadata.get("tag"), default)


def _classify(annotation: Any) -> tuple[Any, bool, bool]:
    """Element type, whether it is an array, whether it may be null."""
    nullable = False
    if isinstance(annotation, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
        nullable = True
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)[0], True, nullable
    return annotation, False, nullable
