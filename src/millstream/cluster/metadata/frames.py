"""The journal's bytes: checksummed frames, one for each group of records that became durable together.

A frame is magic, payload length, CRC-32C of all that follows it, sequence number, payload. One group is one
frame, so that after a crash at most the last frame of the last file can be torn; everything before it was
synced.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

MAGIC = b"MSj1"
_HEADER = Struct(">4sIIQ")
_CHECKED_FROM = 12


class JournalCorrupt(Exception):
    """Bytes that were durable once are not what was written; the node must not start from them."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            f"{path}: corrupt at byte {position}: {reason}; restore the file from a backup, do not delete it"
        )
        self.path = path
        self.position = position


@dataclass(frozen=True, slots=True)
class Frame:
    sequence: int
    position: int
    end: int
    payload: memoryview


def encode_frame(sequence: int, payload: bytes) -> bytes:
    header = _HEADER.pack(MAGIC, len(payload), 0, sequence)
    checksum = crc32c(payload, crc32c(header[_CHECKED_FROM:]))
    return b"".join((_HEADER.pack(MAGIC, len(payload), checksum, sequence), payload))


def read_frame(data: memoryview, position: int) -> Frame | None:
    """The whole and undamaged frame at `position`, or None."""
    if position + _HEADER.size > len(data):
        return None
    magic, length, checksum, sequence = _HEADER.unpack_from(data, position)
    end = position + _HEADER.size + length
    if magic != MAGIC or end > len(data) or crc32c(data[position + _CHECKED_FROM : end]) != checksum:
        return None
    return Frame(sequence, position, end, data[position + _HEADER.size : end])


def read_frames(path: str, data: bytes) -> Iterator[Frame]:
    """Every frame up to the end or a torn tail; damage with whole frames behind it raises JournalCorrupt."""
    view = memoryview(data)
    position = 0
    while (frame := read_frame(view, position)) is not None:
        yield frame
        position = frame.end
    later = data.find(MAGIC, position + 1)
    while later != -1:
        if read_frame(view, later) is not None:
            raise JournalCorrupt(path, position, f"a valid frame follows at byte {later}")
        later = data.find(MAGIC, later + 1)
