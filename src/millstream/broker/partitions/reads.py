"""Reading a partition for those who fetch: clients, and followers. What is the same for both is here."""

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.cluster.replication.divergence import EpochEnd, find_divergence
from millstream.protocol.errors import KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition


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
