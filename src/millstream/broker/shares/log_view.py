"""What a queue sees of its partition's log: batches, and what single records say of themselves."""

from collections.abc import Iterable, Sequence

import msgspec

from millstream.broker.partitions.partition import Partition
from millstream.coordinator.shares.ledger import HIGHEST_PRIORITY
from millstream.coordinator.shares.queue_values import Acquired, LogBatch, Mark
from millstream.doors.partitions import open_batch
from millstream.protocol.record_batch import CONTROL_BIT, read_header
from millstream.protocol.records import InvalidRecordsError, Record

PRIORITY, DELAY, DELIVER_AT, TTL = (
    "millstream.priority",
    "millstream.delay.ms",
    "millstream.deliver.at.ms",
    "millstream.ttl.ms",
)
SCAN_BYTES = 256 << 10


class ReadBatch(msgspec.Struct, frozen=True):
    """A batch, and its bytes as they are stored."""

    batch: LogBatch
    data: memoryview

    def records(self) -> list[Record] | None:
        """None where they cannot be read, or are too much of something: their producer has sent the batch like that."""
        try:
            return open_batch(read_header(self.data), self.data)
        except InvalidRecordsError:
            return None


def read_batches(partition: Partition, offset: int, max_bytes: int, upper: int) -> list[ReadBatch]:
    """Whole batches from the one that `offset` is in, at least one if there is any."""
    data = partition.log.read(offset, max_bytes, upper, min_one=True).data
    found = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        batch = LogBatch(
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            header.max_timestamp,
            bool(header.attributes & CONTROL_BIT),
        )
        found.append(ReadBatch(batch, data[at : at + header.size_bytes]))
        at += header.size_bytes
    return found


def scan(batches: Iterable[ReadBatch], offset: int, upper: int) -> tuple[list[Mark], int]:
    """What the records of the batches say of themselves, from `offset` on, and where to go on."""
    marks: list[Mark] = []
    end = upper
    for read in batches:
        end = read.batch.last + 1
        if read.batch.skipped:
            continue
        records = read.records()
        if records is None:
            marks.append(Mark(max(read.batch.first, offset), last=min(read.batch.last, upper - 1)))
        else:
            marks += [_mark(record) for record in records if offset <= record.offset < upper]
    return marks, min(end, upper)


def chosen(read: Sequence[ReadBatch], ranges: Sequence[Acquired]) -> list[memoryview]:
    """The bytes of those batches that hold something of the ranges; both are in order."""
    found = []
    position = 0
    for each in read:
        while position < len(ranges) and ranges[position].last < each.batch.first:
            position += 1
        if position < len(ranges) and ranges[position].first <= each.batch.last:
            found.append(each.data)
    return found


def _mark(record: Record) -> Mark:
    if not record.headers:
        return Mark(record.offset, record.key)
    said = {name: value for name, value in record.headers if name in _NAMES}
    delay_ms, ttl_ms = _number(said, DELAY), _number(said, TTL)
    due_ms = _number(said, DELIVER_AT) or (record.timestamp_ms + delay_ms if delay_ms else 0)
    return Mark(
        record.offset,
        record.key,
        min(_number(said, PRIORITY), HIGHEST_PRIORITY),
        due_ms,
        max(due_ms, record.timestamp_ms) + ttl_ms if ttl_ms else 0,
    )


_NAMES = frozenset((PRIORITY, DELAY, DELIVER_AT, TTL))


def _number(said: dict[str, bytes | None], name: str) -> int:
    """A number in decimal digits. Anything else is ignored: a producer's mistake must not stop a queue."""
    text = said.get(name)
    if not text or not text.isdigit() or len(text) > 15:
        return 0
    return int(text)
