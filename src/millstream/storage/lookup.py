"""Find records by time. A batch is opened only when it is the one that holds the answer."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from millstream.protocol.record_batch import BatchHeader
from millstream.protocol.record_spans import record_times
from millstream.protocol.records import check_record_count, unpack_batch
from millstream.storage.log import PartitionLog
from millstream.storage.segment import NO_TIMESTAMP, Segment


class OpenLimit(msgspec.Struct):
    """What one look-up may open yet. A batch that was stored unopened may unpack to anything, and there may be any
    number of batches whose headers name a time that none of their records has.
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
    """A batch as it stands in the log: unpacking one can take long, and needs nothing but its bytes."""

    header: BatchHeader
    data: memoryview

    def first_record(self, timestamp: int, log_start_offset: int, limit: OpenLimit) -> TimestampOffset | None:
        for time, offset in self._times(limit):
            if time >= timestamp and offset >= log_start_offset:
                return TimestampOffset(time, offset, self.header.leader_epoch)
        return None

    def largest_timestamp(self, log_start_offset: int, limit: OpenLimit) -> int:
        """Of its records from there on."""
        visible = (time for time, offset in self._times(limit) if offset >= log_start_offset)
        return max(visible, default=NO_TIMESTAMP)

    def _times(self, limit: OpenLimit) -> Iterator[tuple[int, int]]:
        check_record_count(self.header, limit.records)
        limit.records -= self.header.record_count
        header, pieces = unpack_batch(self.data, limit.size_bytes)
        return record_times(header, limit.opened(pieces))


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp` or later."""
    limit = OpenLimit()
    try:
        for batch in _batches_for_timestamp(log, timestamp):
            found = batch.first_record(timestamp, log.log_start_offset, limit)
            if found is not None:
                return found
    except OSError as error:
        raise log.health.read_failed(error) from error
    return None


def batch_for_timestamp(log: PartitionLog, timestamp: int, from_offset: int = 0) -> FoundBatch | None:
    """The first batch from there on that says it has such a record, unopened; it may be below the log's start."""
    try:
        return next(_batches_for_timestamp(log, timestamp, from_offset), None)
    except OSError as error:
        raise log.health.read_failed(error) from error


def _batches_for_timestamp(log: PartitionLog, timestamp: int, from_offset: int = 0) -> Iterator[FoundBatch]:
    for segment in log.segments:
        summary = segment.summary
        if summary.end_offset <= max(log.log_start_offset, from_offset) or summary.max_timestamp < timestamp:
            continue
        start = 0
        if from_offset > summary.base_offset:
            start = segment.position_of(log.disk, from_offset) or 0
        while (found := segment.batch_at_or_after_time(log.disk, timestamp, start)) is not None:
            position, header, data = found
            yield FoundBatch(header, data)
            start = position + header.size_bytes


def largest_timestamp(log: PartitionLog) -> tuple[int, FoundBatch | None]:
    """Of all records but those of the batch that the log begins within, which must be opened to tell.

    NO_TIMESTAMP when there is none.
    """
    largest, first = NO_TIMESTAMP, None
    try:
        for segment in log.segments:
            visible, begun = _largest_visible(log, segment)
            largest, first = max(largest, visible), begun or first
    except OSError as error:
        raise log.health.read_failed(error) from error
    return largest, first


def _largest_visible(log: PartitionLog, segment: Segment) -> tuple[int, FoundBatch | None]:
    """The segment's largest timestamp; where the log begins inside it, records before do not count."""
    start, summary = log.log_start_offset, segment.summary
    if summary.end_offset <= start:
        return NO_TIMESTAMP, None
    if start <= summary.base_offset:
        return summary.max_timestamp, None
    largest, first = NO_TIMESTAMP, None
    for _, header, data in segment.scan(segment.position_of(log.disk, start) or 0):
        if header.base_offset >= start:
            largest = max(largest, header.max_timestamp)
        elif header.last_offset >= start:
            first = FoundBatch(header, data)
    return largest, first
