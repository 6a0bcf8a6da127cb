"""Copies one partition into the folder: files of earlier backups are kept if they still match, the rest is copied."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from millstream.backup.folder import BackupFolder
from millstream.backup.manifest import BackupError, SegmentCopy, file_path
from millstream.backup.source import Fetched, Place, epoch_end, fetch, log_checksum
from millstream.client.errors import ClientError, from_code
from millstream.client.wire.cluster import Cluster
from millstream.protocol.checksum import crc32c
from millstream.protocol.errors import ErrorCode
from millstream.protocol.record_batch import CorruptBatch, iter_batches

# A file is completed before it grows beyond this; a node checksums one file in one answer (at most 64 MiB).
SEGMENT_BYTES = 32 << 20
_FETCH_BYTES = 8 << 20


class _StartMoved(Exception):
    """The log starts later than before: retention or a client deleted records."""

    def __init__(self, log_start_offset: int) -> None:
        super().__init__()
        self.log_start_offset = log_start_offset


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of a log that goes into the backup."""

    log_start_offset: int
    end_offset: int


@dataclass(slots=True)
class PartitionCopier:
    cluster: Cluster
    folder: BackupFolder
    place: Place
    must_be_compared: bool
    copied: Callable[[int], None]
    segment_bytes: int = SEGMENT_BYTES

    def copy(self, extent: Extent, known: Sequence[SegmentCopy]) -> tuple[Extent, tuple[SegmentCopy, ...]]:
        """Store all of `extent` as files; less if the log's start moves meanwhile."""
        kept = self._still_there(extent, known)
        while True:
            try:
                return extent, tuple(self._copy(extent, kept))
            except _StartMoved as moved:
                start = min(moved.log_start_offset, extent.end_offset)
                extent = Extent(start, extent.end_offset)
                kept = [each for each in kept if each.end_offset > start]

    def _copy(self, extent: Extent, kept: Sequence[SegmentCopy]) -> list[SegmentCopy]:
        segments: list[SegmentCopy] = []
        offset = extent.log_start_offset
        for each in kept:
            if each.base_offset > offset:
                segments += self._copy_range(offset, each.base_offset)
            segments.append(each)
            offset = each.end_offset
        if offset < extent.end_offset:
            segments += self._copy_range(offset, extent.end_offset)
        return segments

    # -- files that need no copy

    def _still_there(self, extent: Extent, known: Sequence[SegmentCopy]) -> list[SegmentCopy]:
        """The files in the folder that the log still matches. A lost or truncated file is copied again."""
        topic_id, index = self.place.topic_id.hex(), self.place.index
        kept = [
            each
            for each in known
            if extent.log_start_offset < each.end_offset <= extent.end_offset
            and each.size_bytes
            and self.folder.has(file_path(topic_id, index, each), each.size_bytes)
        ]
        while kept and not self._has(kept[-1]):
            kept.pop()
        if self.must_be_compared:
            # If compaction removed a tombstone, the records it deleted would return.
            kept = [each for each in kept if self._is_same(each)]
        return kept

    def _has(self, segment: SegmentCopy) -> bool:
        """Whether the leader's log still has what that leader epoch wrote; an unclean election may have truncated
        it.
        """
        epoch, end = self.cluster.patiently(
            f"cannot ask for the leader epochs of {self.place}",
            lambda: epoch_end(self.cluster, self.place, segment.last_epoch),
        )
        return epoch == segment.last_epoch and end >= segment.end_offset

    def _is_same(self, segment: SegmentCopy) -> bool:
        """Compares with the checksum of the leader's own bytes; without one, the segment is copied again."""
        place = self.place
        try:
            leader = self.cluster.leader_of(place.topic_id, place.index)
            found = log_checksum(
                self.cluster, leader, place, segment.base_offset, segment.end_offset, 2**31 - 1
            )
        except (OSError, ClientError):
            self.cluster.close()
            return False
        return (found.size_bytes, found.crc) == (segment.size_bytes, segment.checksum)

    # -- copying

    def _copy_range(self, start: int, end: int) -> list[SegmentCopy]:
        segments: list[SegmentCopy] = []
        offset = start
        file: SegmentFile | None = None
        topic_id = self.place.topic_id.hex()
        try:
            while offset < end:
                records, following = self._fetch(offset, end)
                if file is not None and file.size_bytes + len(records) > self.segment_bytes:
                    segments.append(file.finish(offset))
                    file = None
                if records:
                    if file is None:
                        file = SegmentFile(self.folder, topic_id, self.place.index, offset)
                    file.add(records)
                    self.copied(len(records))
                offset = following
            if file is not None:
                segments.append(file.finish(end))
        except BaseException:
            if file is not None:
                file.discard()
            raise
        return segments

    def _fetch(self, offset: int, end: int) -> tuple[memoryview, int]:
        """Batches that begin below `end`, and the next offset; no batches where compaction has left none."""
        fetched = self.cluster.patiently(f"cannot read {self.place}", lambda: self._ask(offset))
        size, following = 0, offset
        try:
            for position, header in iter_batches(fetched.records):
                if header.base_offset >= end:
                    return fetched.records[:position], end
                if header.last_offset < offset:
                    raise BackupError(
                        f"{self.place}: the node sent offset {header.base_offset}, {offset} was asked for"
                    )
                size = position + header.size_bytes
                following = header.last_offset + 1
        except CorruptBatch as error:
            raise BackupError(f"{self.place}: damaged from offset {following}: {error.message}") from error
        return fetched.records[:size], following

    def _ask(self, offset: int) -> Fetched:
        fetched = fetch(self.cluster, self.place, offset, min(_FETCH_BYTES, self.segment_bytes))
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE and fetched.log_start_offset > offset:
            raise _StartMoved(fetched.log_start_offset)
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise BackupError(
                f"{self.place} ended before offset {offset} while it was copied: records were lost with an unclean"
                " election; make the backup again"
            )
        if fetched.error:
            raise from_code(f"a fetch of {self.place} at offset {offset}", fetched.error)
        if not fetched.records:
            # A node short of memory, or a new leader that does not know its high watermark yet.
            raise from_code(f"nothing came of {self.place} at offset {offset}", ErrorCode.REQUEST_TIMED_OUT)
        return fetched


_TEMPORARY = "copying.tmp"


class SegmentFile:
    def __init__(self, folder: BackupFolder, topic_id: str, index: int, base_offset: int) -> None:
        self._folder = folder
        self._topic_id = topic_id
        self._index = index
        self._base_offset = base_offset
        self._directory = folder.partition_directory(topic_id, index)
        self._path = f"{self._directory}/{_TEMPORARY}"
        self._file = folder.disk.open(self._path, create=True)
        self._file.truncate(0)
        self.size_bytes = 0
        self._checksum = 0
        self._record_count = 0
        self._first_batch = -1
        self._last_epoch = self._max_timestamp = self._max_producer_id = -1

    def add(self, records: memoryview) -> None:
        """Whole batches; CorruptBatch if one is damaged."""
        for _, header in iter_batches(records):
            if self._first_batch < 0:
                self._first_batch = header.base_offset
            self._record_count += header.record_count
            self._last_epoch = max(self._last_epoch, header.leader_epoch)
            self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
            self._max_producer_id = max(self._max_producer_id, header.producer_id)
        self._file.pwrite([records], self.size_bytes)
        self._checksum = crc32c(records, self._checksum)
        self.size_bytes += len(records)

    def finish(self, end_offset: int) -> SegmentCopy:
        """Make the file durable and give it its final name."""
        segment = SegmentCopy(
            self._base_offset,
            end_offset,
            self.size_bytes,
            self._checksum,
            self._record_count,
            self._first_batch,
            self._last_epoch,
            self._max_timestamp,
            self._max_producer_id,
        )
        self._file.sync()
        self._file.close()
        disk = self._folder.disk
        target = f"{self._folder.path}/{file_path(self._topic_id, self._index, segment)}"
        # An equal file may be left from a removed backup: equal contents have the same name.
        disk.rename(self._path, target)
        disk.sync_dir(self._directory)
        return segment

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
            self._folder.disk.unlink(self._path)
