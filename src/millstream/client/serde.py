"""Converts between a program's objects and the bytes of a message.

A `Serde` names both directions. `STRING`, `JSON`, `MSGPACK` and `BYTES` are ready to use; any function can take their
place in a configuration:

    Producer("localhost:9092", value_serializer=JSON)
    Consumer("localhost:9092", value_deserializer=lambda data: MyRecord.parse(data))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
if TYPE_CHECKING:
    # Typing's own has no defaults before Python 3.13: without a deserializer, a key and a value are bytes.
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")

Serializer = Callable[[Any], "bytes | str | None"]
Deserializer = Callable[[bytes], T]


@dataclass(frozen=True, slots=True)
class Serde(Generic[T]):
    """How values of one kind become bytes and come back. None is never passed in: a null stays a null.

    >>> numbers = Serde("number", str, int)
    >>> numbers.deserialize(b"42")
    42
    """

    name: str
    serialize: Callable[[T], "bytes | str | None"]
    deserialize: Callable[[bytes], T]


def _encode_text(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a str is needed, not {type(text).__name__}")
    return text.encode()


def _check_bytes(data: bytes) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"bytes are needed, not {type(data).__name__}")
    return bytes(data)


STRING: Serde[str] = Serde("str", _encode_text, bytes.decode)
JSON: Serde[Any] = Serde("json", msgspec.json.encode, msgspec.json.decode)
MSGPACK: Serde[Any] = Serde("msgpack", msgspec.msgpack.encode, msgspec.msgpack.decode)
BYTES: Serde[bytes] = Serde("bytes", _check_bytes, bytes)


def serializer_of(choice: "Serde[Any] | Serializer | None") -> Serializer | None:
    return choice.serialize if isinstance(choice, Serde) else choice


def deserializer_of(choice: "Serde[Any] | Deserializer[Any] | None") -> Deserializer[Any] | None:
    # Messages already hold bytes, so converting nothing is the fastest.
    if choice is BYTES:
        return None
    return choice.deserialize if isinstance(choice, Serde) else choice
