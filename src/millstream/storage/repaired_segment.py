"""Repairs a damaged segment with batches from another replica.

write          a new file beside the damaged one, complete and synced
announce       with the next flush: no earlier checkpoint is valid for the file that comes
put_in_place   rename it over the damaged one, together with the change in memory; the next flush syncs the directory

Batches from the other replica are preferred. Where it has none, sound local batches stay: it may have compacted more,
and a repair never removes readable records.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader, CorruptBatch, iter_batches
from millstream.runtime.disk import Disk, File
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log import PartitionLog
from millstream.storage.producer_state import ProducerStates
from millstream.storage.segment import Segment, SegmentSummary, sound_batches

REPAIRED_SUFFIX = ".repaired.tmp"


def is_of_its_epoch(header: BatchHeader, epochs: LeaderEpochs, log_start: int) -> bool:
    """Whether the batch's epoch agrees with the log's own. Below the log start it only must not be later."""
    expected = epochs.epoch_of(max(header.base_offset, log_start))
    is_deleted = header.last_offset < log_start
    return header.leader_epoch == expected or (is_deleted and header.leader_epoch < expected)


class RepairedSegment:
    """Accepts only batches that agree with this log's own epochs."""

    def __init__(
        self, log: PartitionLog, damaged: SegmentSummary, end_offset: int, unread_from: int, now_ms: int
    ) -> None:
        """`end_offset`: where the next segment begins; the summary of a damaged file may end too early. `unread_from`:
        the first offset that could not be read.
        """
        self._log = log
        self._unread_from = unread_from
        self._now_ms = now_ms
        self._producers = ProducerStates()
        self._epochs = LeaderEpochs(log.epochs.entries)
        self._damaged = damaged
        self._end_offset = end_offset
        self._segment = self._empty()
        self._gap_end: int | None = None
        self._fetched: list[tuple[BatchHeader, memoryview]] = []
        self._log_start = log.log_start_offset
        self.next_offset = 0
        self.clear()

    @property
    def is_whole(self) -> bool:
        return self.next_offset >= self._end_offset

    @property
    def size_bytes(self) -> int:
        return self._segment.summary.size_bytes

    def clear(self) -> None:
        # Deleted records are not fetched: usually no replica has them.
        self._fetched, self.next_offset = [], max(self._damaged.base_offset, self._log_start)

    def add(self, data: memoryview) -> None:
        """Add batches from `next_offset` on; those behind the segment are ignored. CorruptBatch if they do not fit."""
        found = self.next_offset
        for position, header in iter_batches(data):
            if header.base_offset >= self._end_offset:
                # The other replica has compacted the records at the segment's end away.
                self.next_offset = self._end_offset
                return
            # The log may begin within a batch, which is sent whole.
            follows = header.base_offset >= self.next_offset or (
                not self._fetched and header.last_offset >= self.next_offset == self._log_start
            )
            if not follows or not self._fits(header):
                raise CorruptBatch(
                    f"the batch at offset {header.base_offset} is not one of this log", position
                )
            self._fetched.append((header, data[position : position + header.size_bytes]))
            self.next_offset = header.last_offset + 1
        if found == self.next_offset:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"the other replica has no offset {found}")

    def _fits(self, header: BatchHeader) -> bool:
        is_inside = self._damaged.base_offset <= header.base_offset and header.last_offset < self._end_offset
        return is_inside and is_of_its_epoch(header, self._epochs, self._log_start)

    def write(self, disk: Disk) -> None:
        """Block until the new file is on disk; its indexes are in memory."""
        self._segment, self._producers, self._gap_end = self._empty(), ProducerStates(), None
        path = self._segment.log_path
        damaged = disk.open(path, read_only=True)
        file = disk.open(path + REPAIRED_SUFFIX, create=True)
        try:
            file.truncate(0)
            for header, data in self._merged(damaged):
                position = self.size_bytes
                self._note(header)
                file.pwrite([data], position)
            file.sync()
        finally:
            damaged.close()
            file.close()
        self._segment.seal()

    def _note(self, header: BatchHeader) -> None:
        if header.producer_id >= 0 and header.base_offset >= self._unread_from and not header.is_control:
            self._producers.update(header, header.base_offset, self._now_ms)
        summary = self._segment.summary
        if header.base_offset > summary.end_offset:
            summary.compacted, self._gap_end = True, header.base_offset
        interval = self._log.config.index_interval_bytes
        self._segment.note_batch(
            header, header.base_offset, header.max_timestamp, summary.size_bytes, interval
        )

    def _merged(self, damaged: File) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The fetched batches, and between them sound batches that only this replica has."""
        own = list(self._sound(damaged))
        next_offset = self._damaged.base_offset
        for header, data in self._fetched:
            yield from self._between(own, next_offset, header.base_offset, damaged)
            yield header, data
            next_offset = header.last_offset + 1
        yield from self._between(own, next_offset, self._end_offset, damaged)

    def _sound(self, damaged: File) -> Iterator[tuple[int, BatchHeader]]:
        """Batches of the damaged file that hold by checksum, by offset and by epoch."""
        # No checksum covers the offset: a damaged one must not add a fetched batch twice.
        fetched = {(header.crc, header.size_bytes) for header, _ in self._fetched}
        whole = replace(self._damaged, size_bytes=damaged.size(), end_offset=self._end_offset)
        for position, header, _ in sound_batches(damaged, whole):
            if self._fits(header) and (header.crc, header.size_bytes) not in fetched:
                yield position, header

    @staticmethod
    def _between(
        own: list[tuple[int, BatchHeader]], start: int, end: int, damaged: File
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        for position, header in own:
            if start <= header.base_offset and header.last_offset < end:
                yield header, memoryview(damaged.pread(header.size_bytes, position))

    def announce(self) -> int:
        """Have the next flush say that the file is replaced, and where its last gap ends; returns its number.

        Otherwise recovery, which finds a gap behind the new file, could not tell it from a segment that was lost.
        """
        summary = self._segment.summary
        gap_end = self._end_offset if summary.end_offset < self._end_offset else self._gap_end
        if gap_end is not None:
            self._log.place.note_gap(summary.base_offset, gap_end)
        return self._log.place.begin_rewrite([summary.base_offset])

    def put_in_place(self, damaged: Segment, number: int) -> None:
        """On the event loop, while nothing else changes the log's segments."""
        summary = self._segment.summary
        summary.compacted |= summary.end_offset < self._damaged.end_offset
        summary.end_offset = max(summary.end_offset, self._damaged.end_offset)
        summary.created_ms = self._damaged.created_ms
        summary.number = number
        path = self._segment.log_path + REPAIRED_SUFFIX
        self._log.replace_damaged(damaged, self._segment, path, self._unread_from, self._producers)

    def _empty(self) -> Segment:
        base = self._damaged.base_offset
        summary = SegmentSummary(base, end_offset=base, compacted=self._damaged.compacted)
        segment = Segment(self._log.files, self._log.directory, summary, stored=False)
        segment.index.dirty = segment.time_index.dirty = True
        return segment
