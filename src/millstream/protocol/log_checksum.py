"""Millstream's own request for the checksum of a part of one replica's log on disk.

It covers whole batches from `offset` on, up to `max_bytes` or `until`, so that equal logs give equal checksums, however
they are divided into segments.

    request   topic_id uuid | partition int32 | offset int64 | until int64 (-1: the high watermark) | max_bytes int32
    reply     error int16 | message string | log_start_offset int64 | high_watermark int64 | cleaned_offset int64
              next_offset int64 | size_bytes int64 | batch_count int32 | crc uint32
"""

import struct
from typing import NamedTuple

import msgspec

from millstream.protocol.errors import ErrorCode
from millstream.protocol.wire import MalformedRequest, Reader, string

_REQUEST = struct.Struct(">16siqqi")
_REPLY = struct.Struct(">qqqqqiI")

HIGH_WATERMARK = -1


class ChecksumRequest(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int
    until: int
    max_bytes: int


class LogChecksum(msgspec.Struct, frozen=True):
    log_start_offset: int
    high_watermark: int
    cleaned_offset: int
    """Below it compaction may have removed records that another replica still has."""
    next_offset: int
    size_bytes: int
    batch_count: int
    crc: int


def encode_checksum_request(request: ChecksumRequest) -> bytes:
    return _REQUEST.pack(*request)


def decode_checksum_request(data: memoryview) -> ChecksumRequest:
    if len(data) != _REQUEST.size:
        raise MalformedRequest(f"a request for a checksum has {_REQUEST.size} bytes, not {len(data)}")
    return ChecksumRequest(*_REQUEST.unpack(data))


def encode_checksum_reply(
    checksum: LogChecksum | None, error: ErrorCode = ErrorCode.NONE, message: str = ""
) -> bytes:
    found = checksum or LogChecksum(-1, -1, -1, -1, 0, 0, 0)
    return (
        struct.pack(">h", error)
        + string(message, flexible=False)
        + _REPLY.pack(
            found.log_start_offset,
            found.high_watermark,
            found.cleaned_offset,
            found.next_offset,
            found.size_bytes,
            found.batch_count,
            found.crc,
        )
    )


def decode_checksum_reply(data: memoryview) -> tuple[int, str, LogChecksum]:
    """The error code (0 for none), its message, and the result."""
    reader = Reader(data)
    return reader.i16(), reader.string(), LogChecksum(*reader.unpack(_REPLY))
