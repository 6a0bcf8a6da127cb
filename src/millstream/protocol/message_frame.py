"""The binary message frame: one self-contained message, in a record's value or a request's body.

    length int32 | crc int32 | magic int8 | attributes int8 | timestamp_ms int64
    key_length int32 (-1: null) | key | value_length int32 (-1: null) | value
    header_count int32 | (key_length int32 | key in UTF-8 | value_length int32 (-1: null) | value) ...

Numbers are big-endian. The length counts the bytes after it; the checksum is CRC-32 (zlib's) of the bytes after the
checksum. No attribute is defined: a frame with any is refused, because its value may be compressed.
"""

import struct
import zlib

import msgspec

from millstream.protocol.records import Headers

MAGIC = 1

_HEAD = struct.Struct(">iIbbq")
_LENGTH = struct.Struct(">i")
_CRC_END = 8
_LARGEST = 2**31 - 1


class FrameError(ValueError):
    """Bytes that are no message frame, or not a whole one."""


class MessageFrame(msgspec.Struct, frozen=True, gc=False):
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def encode_frame(message: MessageFrame) -> bytes:
    parts = [_sized(message.key), _sized(message.value), _LENGTH.pack(len(message.headers))]
    for name, value in message.headers:
        parts += [_sized(name.encode()), _sized(value)]
    rest = b"".join(parts)
    length = _HEAD.size - _LENGTH.size + len(rest)
    if length > _LARGEST:
        raise FrameError(f"a message of {length} bytes does not fit into a frame")
    head = _HEAD.pack(length, 0, MAGIC, 0, message.timestamp_ms)
    crc = zlib.crc32(rest, zlib.crc32(head[_CRC_END:]))
    return _HEAD.pack(length, crc, MAGIC, 0, message.timestamp_ms) + rest


def decode_frame(data: bytes | memoryview, max_headers: int = _LARGEST) -> MessageFrame:
    """The message of exactly one frame; raises FrameError."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise FrameError(f"{len(view)} bytes are too few for a message frame")
    length, crc, magic, attributes, timestamp_ms = _HEAD.unpack_from(view)
    if length != len(view) - _LENGTH.size:
        raise FrameError(
            f"the frame claims {length} bytes behind its length, there are {len(view) - _LENGTH.size}"
        )
    if crc != zlib.crc32(view[_CRC_END:]):
        raise FrameError("the frame fails its checksum")
    if magic != MAGIC:
        raise FrameError(f"the frame has version {magic}; only {MAGIC} is known")
    if attributes:
        raise FrameError(f"the frame has the unknown attributes {attributes:#04x}")
    key, position = _read(view, _HEAD.size)
    value, position = _read(view, position)
    headers, position = _read_headers(view, position, max_headers)
    if position != len(view):
        raise FrameError(f"{len(view) - position} bytes follow the headers")
    return MessageFrame(timestamp_ms, key, value, headers)


def _sized(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


def _read(view: memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = _read_length(view, position)
    if size == -1:
        return None, position
    end = position + size
    if size < -1 or end > len(view):
        raise FrameError(f"a field at byte {position} claims {size} bytes")
    return bytes(view[position:end]), end


def _read_length(view: memoryview, position: int) -> tuple[int, int]:
    if position + _LENGTH.size > len(view):
        raise FrameError("the frame ends in the middle of a field")
    (size,) = _LENGTH.unpack_from(view, position)
    return size, position + _LENGTH.size


def _read_headers(view: memoryview, position: int, max_headers: int) -> tuple[Headers, int]:
    count, position = _read_length(view, position)
    # Every header takes at least its two lengths, so a larger count is refused at once.
    if count < 0 or count * 2 * _LENGTH.size > len(view) - position:
        raise FrameError(f"the frame claims {count} headers")
    if count > max_headers:
        raise FrameError(f"the frame has {count} headers; at most {max_headers} are read")
    headers = []
    for _ in range(count):
        name, position = _read(view, position)
        value, position = _read(view, position)
        try:
            headers.append((str(name or b"", "utf-8"), value))
        except UnicodeDecodeError:
            raise FrameError("a header's name is not UTF-8") from None
    return tuple(headers), position
