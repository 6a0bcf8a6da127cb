"""Messages of every API and version through kio, as the independent opinion on what their bytes are."""

import io
from typing import Any

from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from millstream.protocol.kio_loader import message_class

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
