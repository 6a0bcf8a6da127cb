"""Find records by time. A batch is opened only when it is the one that holds the answer."""

from collections.abc import Iterator
from typing import NamedTuple

from millstream.protocol.record_batch import BatchHeader
from millstream.protocol.records import Record, check_record_count, iter_records
from millstream.storage.log import PartitionLog
from millstream.storage.segment import NO_TIMESTAMP, Segment

# A batch that was stored unopened may unpack to anything; it is read piece by piece, and no further than this.
_OPEN_LIMIT_BYTES = 256 << 20
_OPEN_LIMIT_RECORDS = 4_000_000


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class FoundBatch(NamedTuple):
    """A batch as it stands in the log: unpacking one can take long, and needs nothing but its bytes."""

    header: BatchHeader
    data: memoryview

    def first_record(self, timestamp: int, log_start_offset: int) -> TimestampOffset | None:
        for record in _records(self.header, self.data):
            if record.timestamp_ms >= timestamp and record.offset >= log_start_offset:
                return TimestampOffset(record.timestamp_ms, record.offset, self.header.leader_epoch)
        return None


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp` or later."""
    try:
        for batch in _batches_for_timestamp(log, timestamp):
            found = batch.first_record(timestamp, log.log_start_offset)
            if found is not None:
                return found
    except OSError as error:
        raise log.health.read_failed(error) from error
    return None


def batch_for_timestamp(log: PartitionLog, timestamp: int) -> FoundBatch | None:
    """The first batch that has such a record, unopened; it may be one below the log's start that has it."""
    try:
        return next(_batches_for_timestamp(log, timestamp), None)
    except OSError as error:
        raise log.health.read_failed(error) from error


def _batches_for_timestamp(log: PartitionLog, timestamp: int) -> Iterator[FoundBatch]:
    for segment in log.segments:
        if segment.summary.end_offset <= log.log_start_offset or segment.summary.max_timestamp < timestamp:
            continue
        start = 0
        while (found := segment.batch_at_or_after_time(log.disk, timestamp, start)) is not None:
            position, header, data = found
            yield FoundBatch(header, data)
            start = position + header.size_bytes


def largest_timestamp(log: PartitionLog) -> int:
    """Of all records of the log; NO_TIMESTAMP when there is none."""
    try:
        return max((_largest_visible(log, segment) for segment in log.segments), default=NO_TIMESTAMP)
    except OSError as error:
        raise log.health.read_failed(error) from error


def _largest_visible(log: PartitionLog, segment: Segment) -> int:
    """The segment's largest timestamp; where the log begins inside it, records before do not count."""
    start, summary = log.log_start_offset, segment.summary
    if summary.end_offset <= start:
        return NO_TIMESTAMP
    if start <= summary.base_offset:
        return summary.max_timestamp
    largest = NO_TIMESTAMP
    for _, header, data in segment.scan(segment.position_of(log.disk, start) or 0):
        if header.base_offset >= start:
            largest = max(largest, header.max_timestamp)
        elif header.last_offset >= start:
            visible = (each.timestamp_ms for each in _records(header, data) if each.offset >= start)
            largest = max(largest, max(visible, default=NO_TIMESTAMP))
    return largest


def _records(header: BatchHeader, data: memoryview) -> Iterator[Record]:
    check_record_count(header, _OPEN_LIMIT_RECORDS)
    return iter_records(data, _OPEN_LIMIT_BYTES)
