"""The sparse indexes of a segment, in Kafka's byte formats.

    .index      int32 offset - base_offset, int32 position in the .log file
    .timeindex  int64 largest timestamp so far, int32 offset - base_offset of the record that has it

Entries are kept encoded, exactly as in the file: a growing bytearray for the active segment, the file's bytes for a
sealed one. They reach the file in one write when the segment is sealed or the node stops; after a crash the part
behind the recovery point is rebuilt from the log, so a growing index needs no fsync.
"""

import struct
from typing import ClassVar

from millstream.runtime.disk import Disk


class SparseIndex:
    """Pairs that increase in both columns; finds the last pair whose first column is at or below a target."""

    entry: ClassVar[struct.Struct]

    def __init__(self, path: str, data: bytearray | bytes | None) -> None:
        self.path = path
        self._data = data
        self.dirty = False

    @property
    def loaded(self) -> bool:
        return self._data is not None

    def _load(self, disk: Disk) -> bytearray | bytes:
        if self._data is None:
            data = disk.read(self.path)
            self._data = data[: len(data) - len(data) % self.entry.size]
        return self._data

    def append(self, first: int, second: int) -> None:
        data = self._data
        if not isinstance(data, bytearray):
            data = self._data = bytearray(data or b"")
        data += self.entry.pack(first, second)
        self.dirty = True

    def last(self, disk: Disk) -> tuple[int, int] | None:
        data = self._load(disk)
        return self._pair(data, len(data) // self.entry.size - 1) if data else None

    def lookup(self, disk: Disk, target: int) -> tuple[int, int] | None:
        """The last pair whose first column is at or below `target`."""
        data = self._load(disk)
        unpack, width = self.entry.unpack_from, self.entry.size
        low, high = 0, len(data) // width
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * width)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return self._pair(data, low - 1) if low else None

    def is_sane(self, disk: Disk, limit: int) -> bool:
        """Whether the file exists, is whole, and points below `limit`."""
        if not disk.exists(self.path) or disk.size(self.path) % self.entry.size:
            return False
        last = self.last(disk)
        return last is None or 0 <= last[1] < limit

    def write(self, disk: Disk, *, durable: bool) -> None:
        data = self._load(disk) if self._data is None else self._data
        disk.write_atomically(self.path, data, durable=durable)
        self.dirty = False

    def unload(self) -> None:
        """Free the entries of a sealed segment; the file has them."""
        if not self.dirty:
            self._data = None

    def _pair(self, data: bytearray | bytes, number: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(data, number * self.entry.size)
        return first, second

    def is_full(self, limit_bytes: int) -> bool:
        return self._data is not None and len(self._data) + self.entry.size > limit_bytes


class OffsetIndex(SparseIndex):
    entry = struct.Struct(">ii")


class TimeIndex(SparseIndex):
    entry = struct.Struct(">qi")
