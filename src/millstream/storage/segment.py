"""One segment: a `.log` file of record batches and its two indexes."""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader, CorruptBatch
from millstream.runtime.disk import Buffer, Disk, File
from millstream.runtime.invariant import invariant
from millstream.storage.index import OffsetIndex, TimeIndex
from millstream.storage.open_files import OpenFiles
from millstream.storage.scan import PIECE_BYTES, scan_batches

MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1


@dataclass(slots=True)
class SegmentSummary:
    """What is known of a segment without opening it; kept in the checkpoint."""

    base_offset: int
    size_bytes: int = 0
    end_offset: int = 0
    record_count: int = 0
    first_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    created_ms: int = 0


class Segment:
    __slots__ = (
        "_bytes_since_index",
        "_file",
        "_files",
        "_times_indexed_to",
        "index",
        "path",
        "pins",
        "summary",
        "time_index",
    )

    def __init__(self, files: OpenFiles, directory: str, summary: SegmentSummary, *, stored: bool) -> None:
        """`stored`: the indexes are in their files; otherwise they start empty in memory."""
        self.path = f"{directory}/{summary.base_offset:020d}"
        self.summary = summary
        self._files = files
        self._file: File | None = None
        self.pins = 0
        empty = None if stored else bytearray()
        self.index = OffsetIndex(self.path + ".index", empty)
        self.time_index = TimeIndex(self.path + ".timeindex", None if stored else bytearray())
        self._bytes_since_index = 0
        self._times_indexed_to = summary.max_timestamp

    @property
    def base_offset(self) -> int:
        return self.summary.base_offset

    @property
    def log_path(self) -> str:
        return self.path + ".log"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._open(create=False)
        return file

    def create(self) -> None:
        self._open(create=True)

    def _open(self, *, create: bool) -> File:
        file = self._files.open(self, create=create)
        size = file.size()
        if size < self.summary.size_bytes:
            file.close()
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.log_path} holds {size} bytes, {self.summary.size_bytes} were written: it was cut or replaced",
            )
        self._file = file
        self._files.opened(self)
        return file

    def close(self) -> None:
        """Give the file handle back; the next use opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._files.closed(self)
        self.index.unload()
        self.time_index.unload()

    def append(
        self, data: Buffer, header: BatchHeader, base_offset: int, max_timestamp: int, interval_bytes: int
    ) -> None:
        """Write one stamped batch at the end; on failure the file is cut back and the segment is as before."""
        summary = self.summary
        position = summary.size_bytes
        file = self.file
        if not self.index.loaded:
            self._require_indexes(self._files.disk)
        try:
            file.pwrite([data], position)
        except OSError:
            file.truncate(position)
            raise
        self.note_batch(header, base_offset, max_timestamp, position, interval_bytes)

    def note_batch(
        self, header: BatchHeader, base_offset: int, max_timestamp: int, position: int, interval_bytes: int
    ) -> None:
        """Count a batch that stands at `position`, and index it when enough bytes have passed."""
        summary = self.summary
        invariant(position == summary.size_bytes, "a batch is appended at the segment's end")
        size = 12 + header.batch_length
        last_offset = base_offset + header.last_offset_delta
        if max_timestamp > summary.max_timestamp:
            summary.max_timestamp = max_timestamp
            summary.offset_of_max_timestamp = last_offset
        if summary.first_timestamp < 0:
            summary.first_timestamp = max_timestamp
        if position and self._bytes_since_index >= interval_bytes:
            self.index.append(last_offset - summary.base_offset, position)
            self._index_time()
            self._bytes_since_index = 0
        self._bytes_since_index += size
        summary.size_bytes = position + size
        summary.end_offset = last_offset + 1
        summary.record_count += header.record_count

    def _index_time(self) -> None:
        summary = self.summary
        if summary.max_timestamp > self._times_indexed_to:
            self.time_index.append(
                summary.max_timestamp, summary.offset_of_max_timestamp - summary.base_offset
            )
            self._times_indexed_to = summary.max_timestamp

    def seal(self) -> None:
        """Called when no more batches will come: the time index ends with the largest timestamp, as in Kafka."""
        self._index_time()

    def _require_indexes(self, disk: Disk) -> None:
        """Indexes that are missing, torn or point past the log are made again from it."""
        summary = self.summary
        if self.index.loaded and self.time_index.loaded:
            return
        offsets = summary.end_offset - summary.base_offset
        if self.index.is_sane(disk, 1, summary.size_bytes) and self.time_index.is_sane(disk, 1, offsets):
            return
        self.rebuild_indexes()

    def rebuild_indexes(self, interval_bytes: int = 4096) -> None:
        whole = self.summary
        self.summary = SegmentSummary(
            whole.base_offset, end_offset=whole.base_offset, created_ms=whole.created_ms
        )
        self.index = OffsetIndex(self.index.path, bytearray())
        self.time_index = TimeIndex(self.time_index.path, bytearray())
        self._bytes_since_index, self._times_indexed_to = 0, NO_TIMESTAMP
        try:
            for position, header, _ in scan_batches(self.file, 0, whole.size_bytes):
                self.note_batch(header, header.base_offset, header.max_timestamp, position, interval_bytes)
            self.seal()
        except CorruptBatch as error:
            raise self._located(error) from None
        finally:
            self.summary = whole

    def jitter_ms(self, spread_ms: int) -> int:
        """A delay that differs from segment to segment, so that many logs do not roll at once."""
        return crc32c(self.path.encode()) % spread_ms if spread_ms > 0 else 0

    def position_of(self, disk: Disk, offset: int) -> int | None:
        """Where the first batch that holds `offset` or anything after it begins; None past the end."""
        summary = self.summary
        if offset >= summary.end_offset:
            return None
        self._require_indexes(disk)
        entry = self.index.lookup(disk, offset - summary.base_offset)
        start = entry[1] if entry else 0
        # A small first piece: the index brings us within one interval of the batch.
        for position, header, _ in self.scan(start, verify=False, piece_bytes=16384):
            if header.last_offset >= offset:
                return position
        return None

    def batch_at_or_after_time(
        self, disk: Disk, timestamp: int, start: int = 0
    ) -> tuple[int, BatchHeader, memoryview] | None:
        """The first batch at or after position `start` whose largest timestamp reaches `timestamp`."""
        if self.summary.max_timestamp < timestamp:
            return None
        self._require_indexes(disk)
        # An entry below the target says that no record up to its offset is late enough.
        entry = self.time_index.lookup(disk, timestamp - 1)
        if entry is not None:
            start = max(start, self.position_of(disk, self.base_offset + entry[1]) or 0)
        for position, header, data in self.scan(start):
            if header.max_timestamp >= timestamp:
                return position, header, data
        return None

    def scan(
        self, start: int = 0, *, verify: bool = True, piece_bytes: int = PIECE_BYTES
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of the batches from `start` on; CorruptBatch names the file."""
        try:
            yield from scan_batches(
                self.file, start, self.summary.size_bytes, verify=verify, piece_bytes=piece_bytes
            )
        except CorruptBatch as error:
            raise self._located(error) from None

    def _located(self, error: CorruptBatch) -> CorruptBatch:
        return CorruptBatch(f"{self.log_path} at byte {error.position}: {error.message}", error.position)


def find_segment(segments: list[Segment], offset: int) -> int:
    """Index of the last segment that starts at or before `offset`; -1 when all start later."""
    return bisect.bisect_right(segments, offset, key=lambda segment: segment.summary.base_offset) - 1
