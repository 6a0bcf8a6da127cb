"""Topics whose log depends on how far its queues are: a most depth, and records that go when all have settled them."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from millstream.broker.partitions.partition import Partition
from millstream.broker.shares.led_queue import LedQueue, QueueState
from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError


class PartitionLimits:
    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        delete_before: Callable[[Partition, int], Awaitable[None]],
    ) -> None:
        self._spawn = spawn
        self._delete_before = delete_before
        self._queues: dict[Partition, dict[str, LedQueue]] = {}
        self._deleting: set[Partition] = set()

    def watch(self, queue: LedQueue, topic: TopicConfig) -> None:
        """The queue is loaded, or the topic's settings are others."""
        partition = queue.partition
        if topic.queue_max_depth < 0 and not topic.queue_delete_settled:
            if self._queues.pop(partition, None) is not None:
                partition.admit = None
            return
        queues = self._queues.setdefault(partition, {})
        queues[queue.key.group_id] = queue
        has_limit = topic.queue_max_depth >= 0
        partition.admit = (lambda count: self._admit(partition, count)) if has_limit else None
        self.settled(queue)

    def watches(self, queue: LedQueue) -> bool:
        return queue.partition in self._queues

    def settled(self, queue: LedQueue) -> None:
        """The start of a queue may have moved, durably."""
        partition = queue.partition
        if partition not in self._queues or not partition.log.config.queue_delete_settled:
            return
        if partition not in self._deleting and self._floor(partition) > partition.log.log_start_offset:
            self._deleting.add(partition)
            self._spawn(self._delete(partition), "deleting what is settled")

    def _floor(self, partition: Partition) -> int:
        """Before which offset every group that counts has settled everything; 0 while one is not known."""
        queues = self._current(partition)
        if partition.log.config.queue_groups - queues.keys() or not queues:
            return 0
        return min(partition.high_watermark, *(queue.engine.start for queue in queues.values()))

    async def _delete(self, partition: Partition) -> None:
        try:
            while partition.is_leader and (floor := self._floor(partition)) > partition.log.log_start_offset:
                await self._delete_before(partition, floor)
        finally:
            self._deleting.discard(partition)

    def _admit(self, partition: Partition, count: int) -> None:
        """Constant time: each queue knows how much it has left."""
        config = partition.log.config
        queues = self._current(partition)
        for queue in queues.values():
            excess = queue.engine.depth(partition.log.log_end_offset) + count - config.queue_max_depth
            if excess <= 0:
                continue
            if config.queue_overflow == "refuse":
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"group {queue.key.group_id} has {config.queue_max_depth} records of"
                    f" {partition.topic}-{partition.index} left to settle (queue.max.depth)",
                )
            queue.drop_oldest(excess)

    def _current(self, partition: Partition) -> dict[str, LedQueue]:
        queues = self._queues.get(partition, {})
        for group_id in [name for name, queue in queues.items() if not queue.is_current]:
            del queues[group_id]
        return {name: queue for name, queue in queues.items() if queue.state is QueueState.ACTIVE}
