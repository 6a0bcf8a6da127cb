"""Topics whose log depends on their queues: the depth is limited, or records that all groups settled are deleted."""

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
        knows_groups: Callable[[Partition], bool],
    ) -> None:
        """`knows_groups` says whether all groups that have used a topic are in its settings."""
        self._spawn = spawn
        self._delete_before = delete_before
        self._knows_groups = knows_groups
        self._queues: dict[Partition, dict[str, LedQueue]] = {}
        self._deleting: set[Partition] = set()
        # If a topic is full and no group uses it: records before this offset are deleted.
        self._dropped: dict[Partition, int] = {}

    def watch(self, queue: LedQueue, topic: TopicConfig) -> None:
        """The queue was loaded, or the topic's settings changed."""
        partition = queue.partition
        if topic.queue_max_depth < 0 and not topic.queue_delete_settled:
            self._queues.pop(partition, None)
            return
        self._queues.setdefault(partition, {})[queue.key.group_id] = queue
        self.settled(queue)

    def watches(self, queue: LedQueue) -> bool:
        return queue.partition in self._queues

    def closed(self, queue: LedQueue) -> None:
        queues = self._queues.get(queue.partition, {})
        if queues.get(queue.key.group_id) is queue:
            del queues[queue.key.group_id]
        if not queues:
            self._queues.pop(queue.partition, None)

    def settled(self, queue: LedQueue) -> None:
        """The stored start of the queue may have moved."""
        if queue.partition in self._queues:
            self._begin_deleting(queue.partition)

    def groups_known(self, topic_id: bytes) -> None:
        """All groups that have used the topic are in its settings by now."""
        for partition in self._queues:
            if partition.topic_id == topic_id:
                self._begin_deleting(partition)

    def _begin_deleting(self, partition: Partition) -> None:
        if partition not in self._deleting and self._floor(partition) > partition.log.log_start_offset:
            self._deleting.add(partition)
            self._spawn(self._delete(partition), "deleting what is settled")

    def _floor(self, partition: Partition) -> int:
        """Everything before this offset may be deleted: it was dropped, or every group that counts has settled it."""
        config, queues = partition.log.config, self._current(partition)
        floor = self._dropped.get(partition, 0)
        all_are_here = self._knows_groups(partition) and not config.queue_groups - queues.keys()
        if config.queue_delete_settled and queues and all_are_here:
            floor = max(floor, min(queue.stored_start for queue in queues.values()))
        return min(partition.high_watermark, floor)

    async def _delete(self, partition: Partition) -> None:
        try:
            while partition.is_leader and (floor := self._floor(partition)) > partition.log.log_start_offset:
                await self._delete_before(partition, floor)
        finally:
            self._deleting.discard(partition)
            # When this node leads again, it may have other records at those offsets.
            if not partition.is_leader or self._dropped.get(partition, 0) <= partition.log.log_start_offset:
                self._dropped.pop(partition, None)

    def admit(self, partition: Partition, count: int) -> None:
        """Refuse or drop records beyond the maximum depth, in constant time. Without a group, the whole log counts."""
        config = partition.log.config
        queues = self._current(partition)
        if not queues and not config.queue_groups:
            self._admit_without_groups(partition, count)
        for queue in queues.values():
            queue.follow_log_start()
            depth = queue.engine.depth(partition.log.log_end_offset)
            excess = depth + count - config.queue_max_depth
            if excess > 0 and config.queue_overflow == "refuse":
                raise _full(partition, f"group {queue.key.group_id} has {depth}", count)
            # Those that wait for their dead letters were dropped before.
            if excess > queue.engine.archiving:
                queue.drop_oldest(excess - queue.engine.archiving)

    def _admit_without_groups(self, partition: Partition, count: int) -> None:
        log = partition.log
        depth = log.log_end_offset - log.log_start_offset
        excess = depth + count - log.config.queue_max_depth
        if excess > 0 and log.config.queue_overflow == "refuse":
            raise _full(partition, f"no group uses it yet, and there are {depth}", count)
        if excess > 0:
            self._dropped[partition] = min(log.log_start_offset + excess, log.log_end_offset)
            self._begin_deleting(partition)

    def _current(self, partition: Partition) -> dict[str, LedQueue]:
        queues = self._queues.get(partition, {})
        for group_id in [name for name, queue in queues.items() if not queue.is_current]:
            del queues[group_id]
        return {name: queue for name, queue in queues.items() if queue.state is QueueState.ACTIVE}


def _full(partition: Partition, who: str, count: int) -> KafkaError:
    most = partition.log.config.queue_max_depth
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"queue.max.depth of {partition.topic}-{partition.index} is {most}: {who} records left to settle, and a batch"
        f" of {count} came",
    )
