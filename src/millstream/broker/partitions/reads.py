"""Reading a partition: what clients' and followers' fetches have in common, and looking up records by time.

A look-up by time finds the batches on the loop and unpacks them in a thread: a batch's header is its producer's word
and may name a time that none of its records has, so many may have to be unpacked.
"""

from functools import partial
from typing import NamedTuple

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.server.long_work import LongWork
from millstream.cluster.replication import EpochEnd, find_divergence
from millstream.protocol.errors import KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition
from millstream.protocol.record_batch import read_header, record_count_at
from millstream.storage.log import PartitionLog
from millstream.storage.lookup import FoundBatch, OpenLimit, TimestampOffset, batch_for_timestamp
from millstream.storage.lookup import largest_timestamp as largest_of_closed
from millstream.storage.segment import NO_TIMESTAMP

# What a read passes over at most, of batches without records.
_MOST_EMPTY_BYTES = 4 << 20


class KeptBatches(NamedTuple):
    """Batches for a reader that waits for more, read and verified already."""

    batches: memoryview
    next_offset: int
    leader_epoch: int

    def and_more(self, partition: Partition, max_bytes: int, upper: int) -> memoryview | bytes:
        """These batches, and those that have come since."""
        room = max_bytes - len(self.batches)
        if room <= 0 or self.next_offset >= upper:
            return self.batches
        more = partition.log.read(self.next_offset, room, upper, min_one=False).data
        return b"".join((self.batches, more)) if len(more) else self.batches


def kept_of(partition: Partition, found: FetchedPartition) -> KeptBatches:
    batches, at = memoryview(found.records), 0
    while True:
        header = read_header(batches, at)
        at += header.size_bytes
        if at >= len(batches):
            return KeptBatches(batches, header.last_offset + 1, partition.leader_epoch)


class Reads:
    def __init__(self, partitions: Partitions, faults: StorageFaults) -> None:
        self.partitions = partitions
        self._faults = faults

    @staticmethod
    def begin(partition: Partition, wanted: FetchPartition, reply: FetchedPartition) -> None:
        """Check the reader's leader epoch, and put the partition's offsets into the reply."""
        partition.check_epoch(wanted.current_leader_epoch)
        reply.log_start_offset = partition.log.log_start_offset
        reply.high_watermark = partition.high_watermark
        reply.last_stable_offset = partition.last_stable_offset

    @staticmethod
    def divergence(partition: Partition, wanted: FetchPartition) -> EpochEnd | None:
        """Where the reader's history diverges from this log's; None where it does not."""
        log = partition.log
        return find_divergence(log.epochs, log.log_end_offset, wanted.fetch_offset, wanted.last_fetched_epoch)

    def failed(
        self, partition: Partition | None, wanted: FetchPartition, reply: FetchedPartition, error: KafkaError
    ) -> None:
        reply.error = error.code
        self._faults.read_failed(partition, wanted.fetch_offset, error)


def read_for_client(
    log: PartitionLog, offset: int, max_bytes: int, upper: int, *, min_one: bool
) -> tuple[memoryview, int]:
    """Whole batches from `offset` on, and the offset after them.

    They begin with one that has records, if any has some: where a reply has none, librdkafka asks for the same offset
    again, and gives up in the end. Compaction leaves batches without records.
    """
    first = found = log.read(offset, max_bytes, upper, min_one=min_one)
    if len(found.data) and record_count_at(found.data, 0):
        return found
    passed_bytes = 0
    while len(found.data):
        at = _records_begin(found.data)
        if at < len(found.data):
            return found.data[at:], found.next_offset
        passed_bytes += at
        if found.next_offset >= upper or passed_bytes >= _MOST_EMPTY_BYTES:
            break
        found = log.read(found.next_offset, max_bytes, upper, min_one=min_one)
    return first.data, first.next_offset


def _records_begin(data: memoryview) -> int:
    """The position of the first batch with records; the size of `data` if none has any."""
    at = 0
    while at < len(data):
        header = read_header(data, at)
        if header.record_count:
            return at
        at += header.size_bytes
    return at


async def offset_at(long_work: LongWork, log: PartitionLog, timestamp: int) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp` or later."""
    from_offset, limit = 0, OpenLimit()
    while (batch := await first_batch(long_work, log, timestamp, from_offset)) is not None:
        found = await long_work.apart(partial(batch.first_record, timestamp, log.log_start_offset, limit))
        if log.offline is not None:
            # The topic was deleted meanwhile, or the log can no longer be read.
            raise log.offline
        if found is not None and found.offset >= log.log_start_offset:
            return found
        # If the log's start has moved past the record found, search again from there.
        from_offset = log.log_start_offset if found is not None else batch.header.last_offset + 1
    return None


async def first_batch(
    long_work: LongWork, log: PartitionLog, timestamp: int, from_offset: int = 0
) -> FoundBatch | None:
    """The first batch at or after `from_offset` that claims to reach `timestamp`."""
    looked_up = batch_for_timestamp(log, timestamp, from_offset)
    while looked_up.goes_on_at is not None:
        # In steps: a segment of any size may have its largest timestamps at its beginning and its end.
        await long_work.pause()
        if log.offline is not None:
            raise log.offline
        looked_up = batch_for_timestamp(log, timestamp, looked_up.goes_on_at)
    return looked_up.batch


async def largest_timestamp(long_work: LongWork, log: PartitionLog) -> int:
    """The largest timestamp of the log's records; -1 when it has none."""
    offset: int | None = log.log_start_offset
    largest, begun = NO_TIMESTAMP, None
    while offset is not None:
        found = largest_of_closed(log, offset)
        largest, begun, offset = max(largest, found.timestamp), begun or found.begun, found.goes_on_at
        if offset is not None:
            # In steps: the segment in which the log begins may be of any size.
            await long_work.pause()
            if log.offline is not None:
                raise log.offline
    if begun is None:
        return largest
    opened = partial(begun.largest_timestamp, log.log_start_offset, OpenLimit())
    return max(largest, await long_work.apart(opened))
