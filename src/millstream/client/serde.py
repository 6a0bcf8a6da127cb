"""Between the objects of a program and the bytes of a message.

A `Serde` names both directions. `STRING`, `JSON` and `BYTES` are ready to use; any callable can take their place in a
configuration:

    ProducerConfig(bootstrap_servers=[...], value_serializer=JSON)
    ConsumerConfig(bootstrap_servers=[...], value_deserializer=lambda data: MyRecord.parse(data))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

Serializer = Callable[[Any], "bytes | str | None"]
Deserializer = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Serde:
    """How values of one kind become bytes and come back. None is never passed in: a null stays a null."""

    name: str
    serialize: Serializer
    deserialize: Deserializer


def _encode_text(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a str is needed, not {type(text).__name__}")
    return text.encode()


def _check_bytes(data: Any) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"bytes are needed, not {type(data).__name__}")
    return bytes(data)


STRING = Serde("str", _encode_text, bytes.decode)
JSON = Serde("json", msgspec.json.encode, msgspec.json.decode)
BYTES = Serde("bytes", _check_bytes, bytes)


def serializer_of(choice: "Serde | Serializer | None") -> Serializer | None:
    return choice.serialize if isinstance(choice, Serde) else choice


def deserializer_of(choice: "Serde | Deserializer | None") -> Deserializer | None:
    # Messages hold bytes already; leaving them as they are is also the fastest.
    if choice is BYTES:
        return None
    return choice.deserialize if isinstance(choice, Serde) else choice
