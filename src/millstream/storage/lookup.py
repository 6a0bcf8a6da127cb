"""Find records by time; only batches that may hold the answer are unpacked."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from millstream.protocol.record_batch import BatchHeader, CorruptBatch
from millstream.protocol.record_spans import record_times
from millstream.protocol.records import check_record_count, unpack_batch
from millstream.storage.log import PartitionLog
from millstream.storage.segment import NO_TIMESTAMP, Segment

# Scanned in one go: up to some four thousand batches.
_PIECE_BYTES = 256 * 1024


class OpenLimit(msgspec.Struct):
    """How much one look-up may still unpack.

    Batches are stored without being unpacked, so they may unpack to any size, and any number of them may claim a time
    in their headers that none of their records has.
    """

    size_bytes: int = 256 << 20
    records: int = 1_000_000

    def opened(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.size_bytes -= len(piece)
            yield piece


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class FoundBatch(NamedTuple):
    """A batch as stored. Unpacking may take long; it needs only these bytes, so it can run in another thread."""

    header: BatchHeader
    data: memoryview

    def first_record(self, timestamp: int, log_start_offset: int, limit: OpenLimit) -> TimestampOffset | None:
        for time, offset in self._times(limit):
            if time >= timestamp and offset >= log_start_offset:
                return TimestampOffset(time, offset, self.header.leader_epoch)
        return None

    def largest_timestamp(self, log_start_offset: int, limit: OpenLimit) -> int:
        """The largest timestamp of its records at or after `log_start_offset`."""
        visible = (time for time, offset in self._times(limit) if offset >= log_start_offset)
        return max(visible, default=NO_TIMESTAMP)

    def _times(self, limit: OpenLimit) -> Iterator[tuple[int, int]]:
        check_record_count(self.header, limit.records)
        limit.records -= self.header.record_count
        header, pieces = unpack_batch(self.data, limit.size_bytes)
        return record_times(header, limit.opened(pieces))


class LookedUp(NamedTuple):
    batch: FoundBatch | None = None
    goes_on_at: int | None = None
    """The offset at which to continue, if so far there was none."""


def batch_for_timestamp(log: PartitionLog, timestamp: int, from_offset: int = 0) -> LookedUp:
    """The first batch at or after `from_offset` whose header reaches `timestamp`, not unpacked; searches one piece.

    Its matching records may be below the log's start.
    """
    try:
        return _find_batch(log, timestamp, from_offset)
    except OSError as error:
        raise log.health.read_failed(error) from error


def _find_batch(log: PartitionLog, timestamp: int, from_offset: int) -> LookedUp:
    scanned_bytes = 0
    for segment in log.segments:
        summary = segment.summary
        if summary.end_offset <= max(log.log_start_offset, from_offset) or summary.max_timestamp < timestamp:
            continue
        start = segment.time_position(log.disk, timestamp)
        if from_offset > summary.base_offset:
            start = max(start, _start_at(log, segment, from_offset))
        for _, header, data in segment.scan(start, piece_bytes=_PIECE_BYTES):
            if header.max_timestamp >= timestamp:
                return LookedUp(FoundBatch(header, data))
            scanned_bytes += header.size_bytes
            if scanned_bytes >= _PIECE_BYTES:
                # The index leads to the last batch with a later time than all before it, however far back that is.
                return LookedUp(goes_on_at=header.last_offset + 1)
    return LookedUp()


def _start_at(log: PartitionLog, segment: Segment, offset: int) -> int:
    try:
        return segment.position_of(log.disk, offset) or 0
    except CorruptBatch as error:
        # Damage is passed over, here as within a piece.
        return error.position


class LargestTimestamp(NamedTuple):
    """The largest timestamp of a part of the log; NO_TIMESTAMP if it has no records."""

    timestamp: int
    begun: FoundBatch | None = None
    """The batch that contains the first offset; not counted, because it must be unpacked."""
    goes_on_at: int | None = None
    """The offset at which to continue with the rest."""


def largest_timestamp(log: PartitionLog, from_offset: int) -> LargestTimestamp:
    """Of records from `from_offset` on: of a piece of its segment, or of all whole segments behind it."""
    largest = NO_TIMESTAMP
    try:
        for segment in log.segments:
            summary = segment.summary
            if summary.base_offset < from_offset < summary.end_offset:
                return _largest_of_piece(log, segment, from_offset)
            if from_offset <= summary.base_offset:
                largest = max(largest, summary.max_timestamp)
    except OSError as error:
        raise log.health.read_failed(error) from error
    return LargestTimestamp(largest)


def _largest_of_piece(log: PartitionLog, segment: Segment, from_offset: int) -> LargestTimestamp:
    largest, begun, scanned_bytes = NO_TIMESTAMP, None, 0
    start = segment.position_of(log.disk, from_offset) or 0
    for _, header, data in segment.scan(start, piece_bytes=_PIECE_BYTES):
        if header.last_offset < from_offset:
            continue
        if header.base_offset >= from_offset:
            largest = max(largest, header.max_timestamp)
        else:
            begun = FoundBatch(header, data)
        scanned_bytes += header.size_bytes
        if scanned_bytes >= _PIECE_BYTES:
            return LargestTimestamp(largest, begun, header.last_offset + 1)
    return LargestTimestamp(largest, begun, segment.summary.end_offset)
