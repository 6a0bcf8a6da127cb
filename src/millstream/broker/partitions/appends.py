"""Appends clients' batches to partitions that this node leads: checks them, bounds producers, counts records."""

from collections.abc import Callable

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.cluster.metadata.names import is_internal
from millstream.config.settings import PerformanceSettings
from millstream.observability.broker_metrics import MessageCounters
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader
from millstream.runtime.clock import Clock
from millstream.storage.log import Appended
from millstream.storage.producer_state import ProducerStates

# Longer than clients' delivery timeouts (two minutes, five in librdkafka): a producer idle this long retries nothing.
HARMLESS_AFTER_MS = 600_000


class ProducerBounds:
    def __init__(self, settings: PerformanceSettings) -> None:
        self._most = settings.max_producers
        self._most_of_partition = settings.max_producers_per_partition
        self.count = 0
        """Producers on the node; recounted from time to time."""
        self.evicted = 0
        self.refused = 0

    def admit(self, states: ProducerStates, producer_id: int, now_ms: int) -> None:
        """Make room for a producer that is new to its partition, or raise."""
        if producer_id < 0 or producer_id in states:
            return
        if len(states) < self._most_of_partition and self.count < self._most:
            self.count += 1
            return
        if states.forget_longest_idle(now_ms, HARMLESS_AFTER_MS):
            self.evicted += 1
            return
        self.refused += 1
        limit = (
            f"{self._most_of_partition} idempotent producers write to the partition"
            " (performance.max_producers_per_partition)"
            if len(states) >= self._most_of_partition
            else f"{self._most} idempotent producers write to this node (performance.max_producers)"
        )
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{limit}; try again later")


class Appends:
    def __init__(
        self,
        partitions: Partitions,
        producer_bounds: ProducerBounds,
        clock: Clock,
        messages: MessageCounters,
        faults: StorageFaults,
    ) -> None:
        self._partitions = partitions
        self._producer_bounds = producer_bounds
        self._clock = clock
        self._messages = messages
        self._faults = faults
        self.admit_to_queues: Callable[[Partition, int], None] = lambda _partition, _count: None
        """Called before so many records are appended to a topic with queue.max.depth; refuses them with KafkaError."""

    def find(self, topic: str | bytes, index: int, *, by_node: bool = False) -> Partition:
        """The partition, led or followed here; KafkaError where clients may not write to its topic."""
        partition = self._partitions.find_replica(topic, index)
        if not by_node and is_internal(partition.topic):
            # Its records are replayed by coordinators; only they may write them.
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the topic {partition.topic} is internal; clients cannot write to it",
            )
        return partition

    def append(
        self, partition: Partition, records: memoryview, header: BatchHeader, *, by_all: bool
    ) -> Appended:
        """`by_all`: all in-sync replicas are to acknowledge it, so there must be enough of them."""
        if not partition.is_leader:
            # Noted, because this node may lead before the producer's next batches come.
            partition.refuse(header, partition.not_leader())
        if self._partitions.is_withheld(partition):
            partition.refuse(header, partition.isolated_error())
        if partition.replication is not None:
            if partition.replication.damaged_from is not None:
                partition.refuse(header, partition.damaged_error())
            if by_all:
                partition.require_enough_replicas(header)
        now_ms = self._clock.now_ms()
        if header.producer_id >= 0:
            producers = partition.log.producers
            if producers.unread_end and partition.has_other_replicas and producers.may_lack(header):
                partition.refuse(header, _unread(partition))
            self._admit(partition, header, now_ms)
        log = partition.log
        if log.config.queue_max_depth >= 0 and not (header.producer_id >= 0 and log.producers.has(header)):
            self.admit_to_queues(partition, header.record_count)
        appended = partition.append(records, header, now_ms)
        if not appended.duplicate:
            self._messages.count(partition.topic, header.record_count)
        return appended

    def failed(self, error: KafkaError) -> None:
        """An append was refused, perhaps by the disk."""
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._faults.failed("append", error)

    def _admit(self, partition: Partition, header: BatchHeader, now_ms: int) -> None:
        try:
            self._producer_bounds.admit(partition.log.producers, header.producer_id, now_ms)
        except KafkaError as error:
            # Batches that the producer has already sent after this one are refused too.
            partition.refuse(header, error)


def _unread(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"damaged records of {partition.topic}-{partition.index} are being repaired from another replica: until then,"
        " whether this batch is among them is not known",
    )
