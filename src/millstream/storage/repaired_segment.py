"""The batches of a damaged segment, got from somewhere else, and their way into its place.

write          a whole new file beside the damaged one, synced
put_in_place   renamed over it, in one step with the segment in memory; the next flush syncs the directory
"""

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CorruptBatch, iter_batches
from millstream.runtime.disk import Disk
from millstream.storage.log import PartitionLog
from millstream.storage.segment import Segment, SegmentSummary

REPAIRED_SUFFIX = ".repaired.tmp"


class RepairedSegment:
    """Only batches that this log's own epochs have at those offsets are taken."""

    def __init__(self, log: PartitionLog, damaged: SegmentSummary) -> None:
        self._log = log
        self._damaged = damaged
        self._segment = self._empty()
        self._parts: list[memoryview] = []
        self.next_offset = damaged.base_offset

    @property
    def is_whole(self) -> bool:
        return self.next_offset >= self._damaged.end_offset

    @property
    def size_bytes(self) -> int:
        return self._segment.summary.size_bytes

    def clear(self) -> None:
        self._segment, self._parts, self.next_offset = self._empty(), [], self._damaged.base_offset

    def add(self, data: memoryview) -> None:
        """Batches from `next_offset` on; those behind the segment are left out. CorruptBatch when they do not fit."""
        found = self.next_offset
        for position, header in iter_batches(data):
            if header.base_offset >= self._damaged.end_offset:
                # What is missing at the segment's end was compacted away there.
                self._segment.summary.compacted |= self.next_offset < self._damaged.end_offset
                self.next_offset = self._damaged.end_offset
                return
            if (
                header.base_offset < self.next_offset
                or header.last_offset >= self._damaged.end_offset
                or header.leader_epoch != self._log.epochs.epoch_of(header.base_offset)
            ):
                raise CorruptBatch(
                    f"the batch at offset {header.base_offset} is not one of this log", position
                )
            self._segment.summary.compacted |= header.base_offset > self.next_offset
            self._segment.note_batch(
                header,
                header.base_offset,
                header.max_timestamp,
                self.size_bytes,
                self._log.config.index_interval_bytes,
            )
            self._parts.append(data[position : position + header.size_bytes])
            self.next_offset = header.last_offset + 1
        if found == self.next_offset:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {found} is not there to be had")

    def write(self, disk: Disk) -> None:
        """Blocks until the new file and its indexes are on disk."""
        segment = self._segment
        segment.seal()
        file = disk.open(segment.log_path + REPAIRED_SUFFIX, create=True)
        try:
            file.truncate(0)
            file.pwrite(self._parts, 0)
            file.sync()
        finally:
            file.close()

    def put_in_place(self, damaged: Segment) -> None:
        """On the event loop, while nothing else changes the log's segments."""
        summary = self._segment.summary
        summary.end_offset = self._damaged.end_offset
        summary.created_ms = self._damaged.created_ms
        self._log.replace_damaged(damaged, self._segment, self._segment.log_path + REPAIRED_SUFFIX)

    def _empty(self) -> Segment:
        base = self._damaged.base_offset
        summary = SegmentSummary(base, end_offset=base, compacted=self._damaged.compacted)
        segment = Segment(self._log.files, self._log.directory, summary, stored=False)
        segment.index.dirty = segment.time_index.dirty = True
        return segment
