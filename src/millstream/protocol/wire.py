"""Kafka's primitive types, for the few performance-critical messages that are read and written by hand."""

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.limits import MAX_TAGS, NO_ARRAYS, UNLIMITED_ELEMENTS, TooManyElements

I8 = struct.Struct(">b")
I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
_IntegerAt = Callable[[memoryview, int], tuple[int]]
_i8_at: _IntegerAt = I8.unpack_from
_i16_at: _IntegerAt = I16.unpack_from
_i32_at: _IntegerAt = I32.unpack_from
_i64_at: _IntegerAt = I64.unpack_from

NULL_UUID = b"\0" * 16


class MalformedRequest(KafkaError):
    """Bytes that are no valid message of their kind."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class Reader:
    """Reads a request from a buffer without copying it; raises MalformedRequest for invalid bytes.

    Array elements and tagged fields count against `elements`, arrays before their first element is read, because an
    element may take two bytes on the wire and a thousand in memory. Beyond the limit raises TooManyElements.
    """

    __slots__ = ("_elements", "_elements_left", "_end", "arrays", "buffer", "flexible", "position")

    def __init__(
        self,
        buffer: memoryview,
        position: int = 0,
        *,
        flexible: bool = False,
        elements: int = UNLIMITED_ELEMENTS,
        arrays: Mapping[str, int] = NO_ARRAYS,
    ) -> None:
        self.buffer = buffer
        self.position = position
        self.flexible = flexible
        self._end = len(buffer)
        self._elements = self._elements_left = elements
        self.arrays = arrays

    def _take(self, size: int) -> int:
        at = self.position
        if size < 0 or at + size > self._end:
            raise self._too_short(size, at)
        self.position = at + size
        return at

    def _too_short(self, size: int, at: int) -> MalformedRequest:
        return MalformedRequest(f"{size} bytes expected at {at}, the request has {self._end}")

    def i8(self) -> int:
        at = self.position
        self.position = at + 1
        try:
            return _i8_at(self.buffer, at)[0]
        except struct.error:
            raise self._too_short(1, at) from None

    def i16(self) -> int:
        at = self.position
        self.position = at + 2
        try:
            return _i16_at(self.buffer, at)[0]
        except struct.error:
            raise self._too_short(2, at) from None

    def i32(self) -> int:
        at = self.position
        self.position = at + 4
        try:
            return _i32_at(self.buffer, at)[0]
        except struct.error:
            raise self._too_short(4, at) from None

    def i64(self) -> int:
        at = self.position
        self.position = at + 8
        try:
            return _i64_at(self.buffer, at)[0]
        except struct.error:
            raise self._too_short(8, at) from None

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        at = self.position
        self.position = at + layout.size
        try:
            return layout.unpack_from(self.buffer, at)
        except struct.error:
            raise self._too_short(layout.size, at) from None

    def uvarint(self) -> int:
        at = self.position
        try:
            byte = self.buffer[at]
        except IndexError:
            raise self._too_short(1, at) from None
        if byte < 0x80:
            self.position = at + 1
            return byte
        value = shift = 0
        while True:
            byte = self.buffer[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise MalformedRequest("a variable-length number is too long")

    def raw(self, size: int) -> memoryview:
        at = self.position
        end = at + size
        if size < 0 or end > self._end:
            raise self._too_short(size, at)
        self.position = end
        return self.buffer[at:end]

    def uuid(self) -> bytes:
        return bytes(self.raw(16))

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.i16()
        if size == -1:
            return None
        try:
            return str(self.raw(size), "utf-8")
        except UnicodeDecodeError:
            raise MalformedRequest("a string is not UTF-8") from None

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedRequest("a string that must be there is null")
        return value

    def nullable_bytes(self) -> memoryview | None:
        size = self.uvarint() - 1 if self.flexible else self.i32()
        return None if size == -1 else self.raw(size)

    def array_length(self) -> int:
        """Number of elements, -1 for null. Every element takes at least a byte, so a larger count is invalid."""
        count = self.uvarint() - 1 if self.flexible else self.i32()
        if count > 0:
            if count > self._end - self.position:
                raise MalformedRequest(f"an array claims {count} elements")
            self._elements_left = left = self._elements_left - count
            if left < 0:
                raise self._too_many()
        elif count < -1:
            raise MalformedRequest(f"an array claims {count} elements")
        return count

    def _too_many(self) -> TooManyElements:
        return TooManyElements(f"more than the {self._elements} elements that one request may have")

    def check_array(self, name: str, count: int) -> None:
        """Check the limit of a named array after its length was read."""
        most = self.arrays.get(name, count)
        if count > most:
            raise TooManyElements(f"{count} {name} in one request; at most {most} are taken")

    def _tag_count(self) -> int:
        count = self.uvarint()
        if count:
            if count > MAX_TAGS:
                raise TooManyElements(f"{count} tagged fields in one place; at most {MAX_TAGS} are taken")
            self._elements_left -= count
            if self._elements_left < 0:
                raise self._too_many()
        return count

    def skip_tags(self) -> None:
        if self.flexible:
            at = self.position
            if at < self._end and self.buffer[at] == 0:
                # Nearly always: there are none.
                self.position = at + 1
                return
            for _ in range(self._tag_count()):
                self.uvarint()
                self._take(self.uvarint())

    def has_no_tags(self) -> bool:
        """Skip empty tagged fields; False if there are any, which is rare."""
        if self.position < self._end and self.buffer[self.position] == 0:
            self.position += 1
            return True
        return False

    @property
    def elements_left(self) -> int:
        """The remaining limit, for a reader of a part of the same request."""
        return self._elements_left

    def tags(self) -> dict[int, memoryview]:
        found: dict[int, memoryview] = {}
        if self.flexible and not self.has_no_tags():
            for _ in range(self._tag_count()):
                tag = self.uvarint()
                found[tag] = self.raw(self.uvarint())
        return found


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str, *, flexible: bool) -> bytes:
    data = value.encode()
    return (uvarint(len(data) + 1) if flexible else I16.pack(len(data))) + data


def nullable_string(value: str | None, *, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    return string(value, flexible=flexible)


def array_length(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else I32.pack(count)


def format_uuid(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))
