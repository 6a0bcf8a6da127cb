"""The write-ahead log's bytes: checksummed frames, one for each atomic write.

A frame is magic, payload length, CRC-32C of the rest, sequence number, payload. As one write is one frame,
a crash can tear at most the last frame of a file; everything before it was synced.
"""

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct

import msgspec

from millstream.protocol.checksum import crc32c

MAGIC = b"MSw1"
_HEADER = Struct(">4sIIQ")
_CHECKED_FROM = 12
_SECTOR_BYTES = 512


class WalCorrupt(Exception):
    """Durable bytes have changed; the node must not start from them."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            f"{path}: corrupt at byte {position}: {reason}; where there are other nodes, give this one up with"
            " `millstream cluster remove` and --force, and start it with an empty directory; otherwise restore the"
            " file from a backup"
        )
        self.path = path
        self.position = position


class Frame(msgspec.Struct, frozen=True):
    sequence: int
    position: int
    end: int
    payload: memoryview


def encode_frame(sequence: int, payload: bytes) -> bytes:
    header = _HEADER.pack(MAGIC, len(payload), 0, sequence)
    checksum = crc32c(payload, crc32c(header[_CHECKED_FROM:]))
    return b"".join((_HEADER.pack(MAGIC, len(payload), checksum, sequence), payload))


def read_frames(path: str, data: bytes) -> Iterator[Frame]:
    """Every frame up to the end or a torn tail; WalCorrupt for damage that no torn write explains."""
    view = memoryview(data)
    position = 0
    sequence: int | None = None
    while (frame := _read_frame(view, position)) is not None:
        if sequence is not None and frame.sequence != sequence + 1:
            raise WalCorrupt(path, position, f"frame {frame.sequence} follows frame {sequence}")
        yield frame
        position, sequence = frame.end, frame.sequence
    _require_torn(path, data, view, position)


def _read_frame(data: memoryview, position: int) -> Frame | None:
    """The whole and undamaged frame at `position`, or None."""
    if position + _HEADER.size > len(data):
        return None
    magic, length, checksum, sequence = _HEADER.unpack_from(data, position)
    end = position + _HEADER.size + length
    if magic != MAGIC or end > len(data) or crc32c(data[position + _CHECKED_FROM : end]) != checksum:
        return None
    return Frame(sequence, position, end, data[position + _HEADER.size : end])


def _require_torn(path: str, data: bytes, view: memoryview, position: int) -> None:
    later = data.find(MAGIC, position + 1)
    while later != -1:
        if _read_frame(view, later) is not None:
            raise WalCorrupt(path, position, f"a valid frame follows at byte {later}")
        later = data.find(MAGIC, later + 1)
    if not _is_explained_by_tearing(view, position):
        raise WalCorrupt(
            path, position, "the checksum of the last frame does not match, and all of it was written"
        )


def _is_explained_by_tearing(data: memoryview, position: int) -> bool:
    """Whether an interrupted write explains the damage: whole sectors are missing at the end, or are zeros."""
    if position + _HEADER.size > len(data):
        return True
    next_sector = position - position % _SECTOR_BYTES + _SECTOR_BYTES
    if not any(data[position:next_sector]):
        # The first sector is missing; it may end inside the magic.
        return True
    _, length, checksum, _ = _HEADER.unpack_from(data, position)
    if crc32c(data[position + _CHECKED_FROM :]) == checksum:
        # Only the magic or the length is wrong.
        return False
    end = position + _HEADER.size + length
    if end > len(data):
        return True
    cuts = (*range(next_sector, end, _SECTOR_BYTES), end)
    return any(not any(data[start:stop]) for start, stop in pairwise(cuts))
