"""Kafka's primitive types, read and written by hand: kio has no schema for the records of internal topics."""

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class WireError(ValueError):
    """Bytes that are not what their schema says."""


class Writer:
    """Appends fields one after the other; `flexible` selects the compact forms."""

    __slots__ = ("_flexible", "_parts")

    def __init__(self, *, flexible: bool = False) -> None:
        self._parts: list[bytes] = []
        self._flexible = flexible

    def finish(self) -> bytes:
        return b"".join(self._parts)

    def int8(self, value: int) -> None:
        self._parts.append(value.to_bytes(1, "big", signed=True))

    def int16(self, value: int) -> None:
        self._parts.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        self._parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        self._parts.append(_INT64.pack(value))

    def uuid(self, value: UUID) -> None:
        self._parts.append(value.bytes)

    def string(self, value: str | None) -> None:
        data = None if value is None else value.encode()
        if self._flexible:
            self._compact(data)
        elif data is None:
            self.int16(-1)
        elif len(data) > 0x7FFF:
            raise WireError(f"a string of {len(data)} bytes does not fit; 32767 is the most")
        else:
            self._parts.append(_INT16.pack(len(data)) + data)

    def data(self, value: bytes | None) -> None:
        if self._flexible:
            self._compact(value)
        elif value is None:
            self.int32(-1)
        else:
            self._parts.append(_INT32.pack(len(value)) + value)

    def array(self, items: Sequence[T], write: Callable[[T], None]) -> None:
        if self._flexible:
            self.varint(len(items) + 1)
        else:
            self.int32(len(items))
        for item in items:
            write(item)

    def tags(self, tagged: Sequence[tuple[int, bytes]] = ()) -> None:
        """The tagged fields at the end of a flexible structure; other structures have none."""
        if not self._flexible:
            return
        self.varint(len(tagged))
        for tag, value in tagged:
            self.varint(tag)
            self.varint(len(value))
            self._parts.append(value)

    def varint(self, value: int) -> None:
        encoded = bytearray()
        while value > 0x7F:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        encoded.append(value)
        self._parts.append(bytes(encoded))

    def _compact(self, value: bytes | None) -> None:
        if value is None:
            self.varint(0)
        else:
            self.varint(len(value) + 1)
            self._parts.append(value)


class Reader:
    """Reads what a `Writer` wrote; anything short or malformed raises `WireError`, nothing else."""

    __slots__ = ("_data", "_flexible", "_position")

    def __init__(self, data: bytes, *, flexible: bool = False, position: int = 0) -> None:
        self._data = data
        self._flexible = flexible
        self._position = position

    @property
    def exhausted(self) -> bool:
        return self._position >= len(self._data)

    def make_flexible(self) -> None:
        """From here on compact forms: a value's version, which decides it, comes before the fields."""
        self._flexible = True

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise WireError("null where a string is needed")
        return value

    def nullable_string(self) -> str | None:
        length = self.varint() - 1 if self._flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise WireError("a string is not UTF-8") from error

    def data(self) -> bytes:
        return self.nullable_data() or b""

    def nullable_data(self) -> bytes | None:
        length = self.varint() - 1 if self._flexible else self.int32()
        return None if length < 0 else self._take(length)

    def array(self, read: Callable[[], T]) -> list[T]:
        length = self.varint() - 1 if self._flexible else self.int32()
        if length > len(self._data) - self._position:
            # Every element takes at least one byte: a longer array is a lie that would only cost memory.
            raise WireError(f"an array of {length} elements is longer than its record")
        return [read() for _ in range(length)]

    def tags(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        return {self.varint(): self._take(self.varint()) for _ in range(self.varint())}

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 35:
                raise WireError("a variable-length integer is longer than 5 bytes")

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise WireError(f"{size} bytes wanted at {self._position}, but the record has {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
