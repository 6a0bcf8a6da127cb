"""Writes a segment's `.cleaned` files: log, offset index and time index."""

from millstream.protocol.record_batch import BatchHeader
from millstream.runtime.disk import Buffer, Disk
from millstream.storage.compaction.job import CleanedGroup
from millstream.storage.index import OffsetIndex, TimeIndex

CLEANED = ".cleaned"
FILE_KINDS = (".index", ".timeindex", ".log")

_BUFFER_BYTES = 1 << 20


class CleanedSegment:
    """Batches are added in order; `finish` makes all three files durable, `discard` leaves nothing behind."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._paths = [f"{directory}/{base_offset:020d}{kind}{CLEANED}" for kind in FILE_KINDS]
        index_path, time_index_path, path = self._paths
        self._index = OffsetIndex(index_path, bytearray())
        self._time_index = TimeIndex(time_index_path, bytearray())
        self._interval_bytes = index_interval_bytes
        self._file = disk.open(path, create=True)
        self._file.truncate(0)
        self._buffered: list[Buffer] = []
        self._buffered_bytes = 0
        self._written_bytes = 0
        self._bytes_since_index = 0
        self._time_indexed_to = -1
        self._base_offset = self._end_offset = base_offset
        self._record_count = 0
        self._first_timestamp = self._max_timestamp = self._offset_of_max_timestamp = -1

    @property
    def size_bytes(self) -> int:
        return self._written_bytes + self._buffered_bytes

    def append(self, header: BatchHeader, data: Buffer) -> None:
        """Add one batch; `header` is that of `data`."""
        last_offset = header.last_offset
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._first_timestamp < 0:
            self._first_timestamp = header.max_timestamp
        if self._bytes_since_index >= self._interval_bytes:
            self._index.append(last_offset - self._base_offset, self.size_bytes)
            self._index_time()
            self._bytes_since_index = 0
        self._bytes_since_index += len(data)
        self._end_offset = last_offset + 1
        self._record_count += header.record_count
        self._buffered.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._flush()

    def _index_time(self) -> None:
        if self._max_timestamp > self._time_indexed_to:
            self._time_index.append(self._max_timestamp, self._offset_of_max_timestamp - self._base_offset)
            self._time_indexed_to = self._max_timestamp

    def _flush(self) -> None:
        if self._buffered:
            self._written_bytes += self._file.pwrite([b"".join(self._buffered)], self._written_bytes)
            self._buffered.clear()
            self._buffered_bytes = 0

    def finish(self, sources: tuple[int, ...]) -> CleanedGroup:
        self._flush()
        self._index_time()
        self._file.sync()
        self._file.close()
        self._index.write(self._disk, durable=True)
        self._time_index.write(self._disk, durable=True)
        return CleanedGroup(
            sources=sources,
            base_offset=self._base_offset,
            end_offset=self._end_offset,
            size_bytes=self._written_bytes,
            record_count=self._record_count,
            first_timestamp=self._first_timestamp,
            max_timestamp=self._max_timestamp,
            offset_of_max_timestamp=self._offset_of_max_timestamp,
        )

    def discard(self) -> None:
        self._file.close()
        for path in self._paths:
            self._disk.unlink(path)
