"""The kinds of records of an internal topic: the number that starts the key, and the fields of key and value."""

from typing import Any

import msgspec

from millstream.protocol.layout import Layout
from millstream.protocol.wire import I16, MalformedRequest, Reader


class RecordKind(msgspec.Struct, frozen=True):
    """`also` are older numbers of keys with the same fields."""

    number: int
    key: type
    value: Layout[Any]
    also: tuple[int, ...] = ()


class RecordTable:
    def __init__(self, *kinds: RecordKind) -> None:
        keys = {kind.key: Layout(kind.key)(0, False) for kind in kinds}
        self._by_type = {
            kind.key: (I16.pack(kind.number), keys[kind.key].write, kind.value.encode) for kind in kinds
        }
        self._by_number = {
            number: (keys[kind.key].read, kind.value.decode)
            for kind in kinds
            for number in (kind.number, *kind.also)
        }

    def encode(self, key: Any, value: Any | None) -> tuple[bytes, bytes | None]:
        """A value of None is a tombstone."""
        number, write_key, encode_value = self._by_type[type(key)]
        return number + write_key(key), None if value is None else encode_value(value)

    def decode(self, key: bytes, value: bytes | None) -> tuple[Any, Any | None] | None:
        """None for a kind of record that only newer versions know."""
        reader = Reader(memoryview(key))
        number = reader.i16()
        if number < 0:
            raise MalformedRequest(f"a key has the impossible kind {number}")
        kind = self._by_number.get(number)
        if kind is None:
            return None
        read_key, decode_value = kind
        return read_key(reader), None if value is None else decode_value(value)
