"""A queue's view of its partition's log: batches, and the marks (key, priority, times) of single records."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from millstream.broker.partitions.partition import Partition
from millstream.coordinator.shares.ledger import HIGHEST_PRIORITY
from millstream.coordinator.shares.queue_values import Acquired, LogBatch, Mark
from millstream.doors.partitions import iter_batch, open_small_batch
from millstream.protocol.record_batch import CONTROL_BIT, read_header
from millstream.protocol.records import InvalidRecordsError, Record

PRIORITY, DELAY, DELIVER_AT, TTL = (
    "millstream.priority",
    "millstream.delay.ms",
    "millstream.deliver.at.ms",
    "millstream.ttl.ms",
)
SCAN_BYTES = 256 << 10
# Records and headers to scan before others have their turn.
SLICE_ELEMENTS = 2_000
_KEPT_KEY_BYTES = 32
# Work in elements: to open a batch, to fail at an invalid one; and the bytes of a record that count as one element.
_OF_A_BATCH, _OF_NO_RECORDS, _BYTES_OF_ONE = 3, 256, 4_096


class ReadBatch(msgspec.Struct, frozen=True):
    """A batch, and its bytes as they are stored."""

    batch: LogBatch
    data: memoryview

    def records(self) -> Iterator[Record]:
        """For a thread. InvalidRecordsError if they cannot be read or exceed a limit: their producer has sent the
        batch like that.
        """
        return iter_batch(read_header(self.data), self.data)

    def few_records(self) -> list[Record] | None:
        """Like `records`, for the event loop: None if that would take long."""
        return open_small_batch(read_header(self.data), self.data)


class Looked(msgspec.Struct, frozen=True):
    """Marks of records before `upto`, and how much work they took."""

    marks: list[Mark]
    upto: int
    elements: int


def read_batches(partition: Partition, offset: int, max_bytes: int, upper: int) -> list[ReadBatch]:
    """Whole batches, beginning with the one that contains `offset`; at least one if there is any."""
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


def look(batches: Sequence[ReadBatch], offset: int, upper: int) -> Looked | ReadBatch:
    """Marks of the batches' records from `offset` on, within a limit of work. If the first batch takes long, it is
    returned itself: a few compressed bytes may hold half a million records.
    """
    marks: list[Mark] = []
    elements = 0
    upto = upper if not batches else offset
    for read in batches:
        last = min(read.batch.last, upper - 1)
        if not read.batch.skipped:
            try:
                records = read.few_records()
            except InvalidRecordsError:
                marks.append(_unknown(read, upto, last))
                elements += _OF_NO_RECORDS
            else:
                if records is None:
                    return Looked(marks, upto, elements) if elements else read
                marks += [_mark(record) for record in records if upto <= record.offset <= last]
                elements += sum(map(_work, records))
        upto = max(upto, last + 1)
        elements += _OF_A_BATCH
        if elements >= SLICE_ELEMENTS:
            break
    return Looked(marks, upto, elements)


def look_apart(read: ReadBatch, offset: int, upper: int, most: int) -> list[Looked]:
    """Like `look`, for one batch that takes long, in a thread: in slices, with about `most` records in all."""
    slices: list[Looked] = []
    marks: list[Mark] = []
    last, upto = min(read.batch.last, upper - 1), offset
    try:
        for record in read.records():
            if not upto <= record.offset <= last:
                continue
            marks.append(_mark(record))
            upto = record.offset + 1
            if len(marks) == SLICE_ELEMENTS:
                slices.append(Looked(marks, upto, len(marks)))
                marks = []
                if len(slices) * SLICE_ELEMENTS >= most:
                    return slices
    except InvalidRecordsError:
        marks.append(_unknown(read, upto, last))
    return [*slices, Looked(marks, last + 1, len(marks))]


def _work(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(value or b"") for _, value in record.headers)
    return 1 + len(record.headers) + size // _BYTES_OF_ONE


def _unknown(read: ReadBatch, offset: int, last: int) -> Mark:
    """The mark of records that cannot be unpacked."""
    return Mark(max(read.batch.first, offset), last=last)


def chosen(read: Sequence[ReadBatch], ranges: Sequence[Acquired]) -> list[memoryview]:
    """The bytes of those batches that overlap the ranges; both are in order."""
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
        return Mark(record.offset, _short(record.key))
    said = {name: value for name, value in record.headers if name in _NAMES}
    delay_ms, ttl_ms = _number(said, DELAY), _number(said, TTL)
    due_ms = _number(said, DELIVER_AT) or (record.timestamp_ms + delay_ms if delay_ms else 0)
    return Mark(
        record.offset,
        _short(record.key),
        min(_number(said, PRIORITY), HIGHEST_PRIORITY),
        due_ms,
        max(due_ms, record.timestamp_ms) + ttl_ms if ttl_ms else 0,
    )


_NAMES = frozenset((PRIORITY, DELAY, DELIVER_AT, TTL))


def _short(key: bytes | None) -> bytes | None:
    """The key, or a hash of a long one: a queue keeps very many keys in memory."""
    return (
        key
        if key is None or len(key) <= _KEPT_KEY_BYTES
        else blake2b(key, digest_size=_KEPT_KEY_BYTES).digest()
    )


def _number(said: dict[str, bytes | None], name: str) -> int:
    """A number in decimal digits. Anything else is ignored: a producer's mistake must not stop a queue."""
    text = said.get(name)
    if not text or not text.isdigit() or len(text) > 15:
        return 0
    return int(text)
