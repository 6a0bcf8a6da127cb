"""Reading a partition: what fetches of clients and of followers have in common."""

from typing import NamedTuple

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.cluster.replication import EpochEnd, find_divergence
from millstream.protocol.errors import KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition
from millstream.protocol.record_batch import read_header


class Kept(NamedTuple):
    """Batches that were found for a reader that waits for more; they are not read and verified again."""

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


def kept_of(partition: Partition, found: FetchedPartition) -> Kept:
    batches, at = memoryview(found.records), 0
    while True:
        header = read_header(batches, at)
        at += header.size_bytes
        if at >= len(batches):
            return Kept(batches, header.last_offset + 1, partition.leader_epoch)


class Reads:
    def __init__(self, partitions: Partitions, faults: StorageFaults) -> None:
        self.partitions = partitions
        self._faults = faults

    @staticmethod
    def begin(partition: Partition, wanted: FetchPartition, reply: FetchedPartition) -> None:
        """Check the epoch that the reader knows, and say where the partition stands."""
        partition.check_epoch(wanted.current_leader_epoch)
        reply.log_start_offset = partition.log.log_start_offset
        reply.high_watermark = partition.high_watermark
        reply.last_stable_offset = partition.last_stable_offset

    @staticmethod
    def divergence(partition: Partition, wanted: FetchPartition) -> EpochEnd | None:
        """Where the reader's history parts from this log's; None where it does not."""
        log = partition.log
        return find_divergence(log.epochs, log.log_end_offset, wanted.fetch_offset, wanted.last_fetched_epoch)

    def failed(
        self, partition: Partition | None, wanted: FetchPartition, reply: FetchedPartition, error: KafkaError
    ) -> None:
        reply.error = error.code
        self._faults.read_failed(partition, wanted.fetch_offset, error)
