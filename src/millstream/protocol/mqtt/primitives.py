"""MQTT's data types. A reader takes the data, a position and an end; it returns the value and the position after it, or
raises a Violation."""

import re
from functools import lru_cache
from typing import Final

from millstream.protocol.mqtt.reasons import malformed

MOST_VARINT: Final = 268_435_455
LONGEST_TEXT: Final = 65_535
_CONTROL: Final = re.compile("[\x01-\x1f\x7f-\x9f]")


def read_byte(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise malformed("the packet ends before its fields do")
    return data[at], at + 1


def read_u16(data: bytes, at: int, end: int) -> tuple[int, int]:
    stop = at + 2
    if stop > end:
        raise malformed("the packet ends before its fields do")
    return data[at] << 8 | data[at + 1], stop


def read_u32(data: bytes, at: int, end: int) -> tuple[int, int]:
    stop = at + 4
    if stop > end:
        raise malformed("the packet ends before its fields do")
    return int.from_bytes(data[at:stop], "big"), stop


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable byte integer: up to four bytes, and no more than the value needs."""
    value = shift = 0
    for position in range(at, min(at + 4, end)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise malformed("a variable byte integer is longer than it need be")
            return value, position + 1
        shift += 7
    raise malformed("a variable byte integer does not end")


def read_binary(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    size, at = read_u16(data, at, end)
    stop = at + size
    if stop > end:
        raise malformed("a field is longer than the packet")
    return data[at:stop], stop


def read_text(data: bytes, at: int, end: int) -> tuple[str, int]:
    raw, at = read_binary(data, at, end)
    return checked_text(raw), at


def checked_text(raw: bytes) -> str:
    """Well-formed UTF-8 without control characters; a byte order mark is a character like any other."""
    text = _decoded(raw)
    # Control characters are useless in names, and harmful in logs and terminals; the standard lets servers refuse them.
    if _CONTROL.search(text) is not None:
        raise malformed("a text has a control character")
    return text


def _decoded(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise malformed("a text is not well-formed UTF-8") from None
    if b"\0" in raw:
        raise malformed("a text has the character U+0000")
    return text


def read_text_pair(data: bytes, at: int, end: int) -> tuple[tuple[str, str], int]:
    """A user property, in which control characters such as line breaks are allowed."""
    name, at = read_binary(data, at, end)
    value, at = read_binary(data, at, end)
    return (_decoded(name), _decoded(value)), at


def write_byte(value: int) -> bytes:
    return bytes((value,))


def write_u16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def write_u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


@lru_cache(4_096)
def write_varint(value: int) -> bytes:
    """Cached, because packets and properties have few different lengths."""
    if value < 0x80:
        return bytes((value,))
    if value > MOST_VARINT:
        raise ValueError(f"{value} is more than a variable byte integer can hold")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_binary(value: bytes) -> bytes:
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"a field of {len(value)} bytes; {LONGEST_TEXT} is the most")
    return len(value).to_bytes(2, "big") + value


def write_text(value: str) -> bytes:
    return write_binary(value.encode())


def write_text_pair(value: tuple[str, str]) -> bytes:
    return write_text(value[0]) + write_text(value[1])
