"""Counts and logs failures of the disk and damaged batches, and has damage repaired where it can be.

A node that can no longer write a replica ends.
"""

from collections.abc import Callable

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.logs import get_logger
from millstream.observability.repeats import LogThrottle
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CorruptBatch
from millstream.runtime.clock import Clock
from millstream.storage.log_health import LogGone, NoRoom

log = get_logger("millstream.disk")

_REPEATED_LOG_SECONDS = 10.0
_WRITES = ("fsync", "append", "replicate", "retention", "cleaning")


class StorageFaults:
    def __init__(
        self, metrics: BrokerMetrics, clock: Clock, partitions: Partitions, end_node: Callable[[str], None]
    ) -> None:
        """`end_node` is called with the reason why the node must end."""
        self.on_no_room: Callable[[], None] = lambda: None
        """Called when the disk is full."""
        self.on_damage: Callable[[Partition, int], None] = lambda _partition, _offset: None
        """Called with an offset at or after which a batch is damaged."""
        self._metrics = metrics
        self._partitions = partitions
        self._end_node = end_node
        self._throttle: LogThrottle[tuple[str, str]] = LogThrottle(clock.monotonic, _REPEATED_LOG_SECONDS)

    def failed(self, operation: str, error: KafkaError) -> None:
        """An operation on the disk failed."""
        if isinstance(error, LogGone):
            # A file that is gone because its partition is gone is no fault of the disk.
            return
        self._metrics.storage_errors.labels(operation).value += 1
        # A client that retries would fill the log with the same line.
        if self._throttle.is_due(("storage", error.message)):
            log.error("storage error", operation=operation, error=error.message)
        if isinstance(error, NoRoom):
            self.on_no_room()
        if operation in _WRITES and any(
            each.log.offline is not None and each.has_other_replicas for each in self._partitions
        ):
            # Other replicas have the records that this node cannot write any more. While it lives it might be chosen to
            # lead.
            self._end_node(f"a replica cannot be written: {error.message}")

    def read_failed(self, partition: Partition | None, offset: int, error: KafkaError) -> None:
        """Reading was refused; most reasons are no fault of the disk."""
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            self.damaged(partition, offset, error)
        elif error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.failed("read", error)

    def damaged(self, partition: Partition | None, offset: int, error: object) -> None:
        """A batch at or after `offset` failed its checksum; another replica may have it sound."""
        self._metrics.corrupt_batches.value += 1
        if self._throttle.is_due(("damage", str(error))):
            log.error("corrupt record batch", effect="not served", error=str(error))
        if partition is not None:
            if isinstance(error, CorruptBatch):
                # The batch after an offset may lie in a later segment: compaction leaves gaps.
                offset = max(offset, error.segment_base)
            self.on_damage(partition, offset)
