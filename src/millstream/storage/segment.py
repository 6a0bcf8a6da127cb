"""One segment: a `.log` file of record batches and its two indexes."""

import bisect
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from millstream.protocol.checksum import crc32c
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from millstream.runtime.disk import Buffer, Disk, File
from millstream.runtime.invariant import invariant
from millstream.storage.index import OffsetIndex, TimeIndex
from millstream.storage.open_files import OpenFiles
from millstream.storage.scan import PIECE_BYTES, scan_sound

MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1
# The index brings a look-up within one interval of its batch: little is read at first.
_LOOKUP_PIECE_BYTES = 16384
_REBUILT_INTERVAL_BYTES = 4096
# From this size on blocks are reserved ahead, which saves a third of a write's cost. Not for smaller segments, so that
# many small partitions reserve no room that they do not use.
_ALLOCATED_FROM = 4 << 20
_MOST_AHEAD_BYTES = 16 << 20


class SegmentSummary(msgspec.Struct):
    """A segment's metadata, kept in the checkpoint, so that the file need not be opened."""

    base_offset: int
    size_bytes: int = 0
    end_offset: int = 0
    record_count: int = 0
    first_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    created_ms: int = 0
    compacted: bool = False
    """Offsets may be missing; otherwise each batch begins where the one before ended."""
    number: int = 0
    """Changes each time the file is replaced, see storage/identity.py."""


class Segment:
    __slots__ = (
        "_allocated_to",
        "_bytes_since_index",
        "_file",
        "_files",
        "_reserved",
        "_times_indexed_to",
        "index",
        "path",
        "pins",
        "summary",
        "time_index",
    )

    def __init__(self, files: OpenFiles, directory: str, summary: SegmentSummary, *, stored: bool) -> None:
        """`stored`: the indexes are in files; otherwise they start empty in memory."""
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
        self._allocated_to = _ALLOCATED_FROM
        # A crash may have left reserved blocks behind the end of an existing file.
        self._reserved = stored

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
        """Close the file handle; the next use reopens it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._files.closed(self)
        if not (self.index.dirty or self.time_index.dirty):
            self.index.unload()
            self.time_index.unload()

    def append(
        self, data: Buffer, header: BatchHeader, base_offset: int, max_timestamp: int, interval_bytes: int
    ) -> None:
        """Append one stamped batch; on failure the file is cut back and the segment is unchanged."""
        position = self._write_at_end(data)
        self.note_batch(header, base_offset, max_timestamp, position, interval_bytes)

    def append_run(self, data: Buffer, headers: Sequence[BatchHeader], interval_bytes: int) -> None:
        """As `append`, for consecutive batches in `data` that have their offsets already."""
        position = self._write_at_end(data)
        for header in headers:
            self.note_batch(header, header.base_offset, header.max_timestamp, position, interval_bytes)
            position += header.size_bytes

    def _write_at_end(self, data: Buffer) -> int:
        """Returns the position; on failure the file is cut back and the segment is unchanged."""
        position = self.summary.size_bytes
        file = self.file
        if not (self.index.loaded and self.time_index.loaded):
            self._require_indexes(self._files.disk)
        if position + len(data) > self._allocated_to:
            self._allocate_ahead(file, position, position + len(data))
        try:
            file.pwrite([data], position)
        except OSError:
            file.truncate(position)
            raise
        return position

    def _allocate_ahead(self, file: File, position: int, end: int) -> None:
        ahead = min(position // 4, _MOST_AHEAD_BYTES)
        # A disk without room for this may still have room for the write itself.
        with suppress(OSError):
            file.allocate(position, end - position + ahead)
        self._reserved, self._allocated_to = True, end + ahead

    def allocate(self, size_bytes: int) -> None:
        """Reserve blocks for the whole segment."""
        self.file.allocate(0, size_bytes)
        self._reserved, self._allocated_to = True, max(size_bytes, _ALLOCATED_FROM)

    def trim(self) -> None:
        """Release reserved blocks that were not written: no more batches are expected soon."""
        if self._reserved and self._file is not None:
            self._file.truncate(self.summary.size_bytes)
            self._reserved, self._allocated_to = False, _ALLOCATED_FROM

    def note_batch(
        self, header: BatchHeader, base_offset: int, max_timestamp: int, position: int, interval_bytes: int
    ) -> None:
        """Count a batch at `position`, and index it if enough bytes have passed."""
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
        """No more batches will be appended: end the time index with the largest timestamp, as in Kafka."""
        # Indexes without an entry are not in files yet, and would be lost when the handle is closed.
        self._require_indexes(self._files.disk)
        self._index_time()

    def _require_indexes(self, disk: Disk) -> None:
        """Rebuild indexes that are missing, torn or point past the log."""
        summary = self.summary
        if self.index.loaded and self.time_index.loaded:
            return
        offsets = summary.end_offset - summary.base_offset
        if self.index.is_sane(disk, summary.size_bytes) and self.time_index.is_sane(disk, offsets):
            return
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """Index the sound batches; readers report the damage."""
        whole = self.summary
        self.summary = SegmentSummary(whole.base_offset)
        self.index = OffsetIndex(self.index.path, bytearray())
        self.time_index = TimeIndex(self.time_index.path, bytearray())
        self._bytes_since_index, self._times_indexed_to = 0, NO_TIMESTAMP
        try:
            for position, header, _ in sound_batches(self.file, whole, 0, PIECE_BYTES):
                self.summary.size_bytes = position
                self.note_batch(
                    header, header.base_offset, header.max_timestamp, position, _REBUILT_INTERVAL_BYTES
                )
            self.seal()
        finally:
            self.summary = whole

    def jitter_ms(self, spread_ms: int) -> int:
        """A delay that differs from segment to segment, so that many logs do not roll at once."""
        return crc32c(self.path.encode()) % spread_ms if spread_ms > 0 else 0

    def position_of(self, disk: Disk, offset: int) -> int | None:
        """The position of the first batch with `offset` or later ones; None past the end, CorruptBatch if damaged."""
        if offset >= self.summary.end_offset:
            return None
        expected = self._indexed_position(disk, offset)
        for position, header, _ in self.scan(expected, piece_bytes=_LOOKUP_PIECE_BYTES):
            if header.last_offset >= offset:
                if header.base_offset > offset and position != expected:
                    break
                return position
            expected = position + header.size_bytes
        if expected < self.summary.size_bytes:
            raise self.corrupt(expected, "the record batch is damaged")
        return None

    def sound_before(self, offset: int) -> tuple[int, int]:
        """The end of the last sound batch wholly before `offset`: position, and next offset."""
        place = 0, self.base_offset
        for position, header, _ in self.scan():
            if header.last_offset >= offset:
                break
            place = position + header.size_bytes, header.last_offset + 1
        return place

    def _indexed_position(self, disk: Disk, offset: int) -> int:
        """Where to start looking for `offset`; an index entry that points to no such batch causes a rebuild."""
        self._require_indexes(disk)
        entry = self.index.lookup(disk, offset - self.base_offset)
        if entry is not None:
            header = self._header_at(entry[1])
            if header is None or header.last_offset != self.base_offset + entry[0]:
                self.rebuild_indexes()
                entry = self.index.lookup(disk, offset - self.base_offset)
        return entry[1] if entry else 0

    def _header_at(self, position: int) -> BatchHeader | None:
        data = self.file.pread(HEADER_SIZE, position)
        return read_header(data) if len(data) == HEADER_SIZE else None

    def time_position(self, disk: Disk, timestamp: int) -> int:
        """A position before which no record reaches `timestamp`, from an index entry that the log confirms."""
        self._require_indexes(disk)
        # An entry below the target means that no record up to its offset reaches it.
        entry = self.time_index.lookup(disk, timestamp - 1)
        if entry is None:
            return 0
        try:
            position = self.position_of(disk, self.base_offset + entry[1])
        except CorruptBatch:
            return 0
        header = self._header_at(position) if position is not None else None
        if header is None or header.max_timestamp != entry[0]:
            self.rebuild_indexes()
            return 0
        return position or 0

    def scan(
        self, start: int = 0, *, piece_bytes: int = PIECE_BYTES
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of the sound batches from `start` on; damage is skipped."""
        return sound_batches(self.file, self.summary, start, piece_bytes)

    def corrupt(self, position: int, message: str) -> CorruptBatch:
        return CorruptBatch(f"{self.log_path} at byte {position}: {message}", position, self.base_offset)


def sound_batches(
    file: File, summary: SegmentSummary, start: int = 0, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Batches with good checksums, whose offsets, which no checksum covers, follow each other.

    One behind a gap is believed once the next one does not contradict it. The first one at `start` is: an index has it.
    """
    next_offset, next_position = summary.base_offset, 0
    behind_gap: tuple[int, BatchHeader, memoryview] | None = None
    for found in scan_sound(file, start, summary.size_bytes, piece_bytes=piece_bytes):
        position, header, _ = found
        if behind_gap is not None:
            at, before, _ = behind_gap
            if header.base_offset <= before.last_offset:
                if header.base_offset >= next_offset:
                    # The offset of one of the two has rotted, and nothing says which.
                    behind_gap = None
                continue
            yield behind_gap
            behind_gap = None
            next_offset, next_position = before.last_offset + 1, at + before.size_bytes
        last_offset = header.last_offset
        if header.base_offset != next_offset:
            must_follow = position == next_position and not summary.compacted
            if must_follow or header.base_offset < next_offset:
                continue
            if last_offset < summary.end_offset and not 0 < start == position:
                behind_gap = found
                continue
        if last_offset < summary.end_offset:
            yield found
            next_offset, next_position = last_offset + 1, position + header.size_bytes
    if behind_gap is not None:
        yield behind_gap


def find_segment(segments: list[Segment], offset: int) -> int:
    """Index of the last segment that starts at or before `offset`; -1 when all start later."""
    return bisect.bisect_right(segments, offset, key=lambda segment: segment.summary.base_offset) - 1
