"""Messages of every API and version through kio, as the independent opinion on what their bytes are."""

import io
from typing import Any

from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from millstream.protocol.codec import message_class
from millstream.protocol.message_shape import shape_of

st.register_type_strategy(Records, st.binary(max_size=40).map(Records))


def messages(name: str, version: int, kind: str) -> st.SearchStrategy[Any]:
    """Any message of this API and version, as kio's class."""
    return st.from_type(message_class(name, version, kind))


def encode(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def decode(name: str, version: int, kind: str, body: bytes) -> Any:
    """The message that is exactly these bytes."""
    message, size = entity_reader(message_class(name, version, kind))(body, 0)
    assert size == len(body), f"{name} version {version}: {len(body) - size} bytes follow the {kind}"
    return message


def build(name: str, version: int, kind: str = "request", **fields: Any) -> Any:
    """A message of which only `fields` matter. Dictionaries (or lists of them) become the entities they stand for."""
    return _filled(message_class(name, version, kind), fields)


def _filled(entity: Any, given: dict[str, Any]) -> Any:
    shape = {field.name: field for field in shape_of(entity)}
    assert given.keys() <= shape.keys(), f"{entity.__name__} has no {given.keys() - shape.keys()}"
    values = {name: field.default for name, field in shape.items()}
    for name, value in given.items():
        values[name] = _entities(shape[name].entity, value)
    return entity(**values)


def _entities(entity: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _filled(entity, value)
    if isinstance(value, list):
        return tuple(_entities(entity, element) for element in value)
    return value
