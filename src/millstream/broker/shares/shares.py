"""All queues of a node: loaded when they are first used, and closed with their partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.reads import first_batch, offset_at
from millstream.broker.partitions.registry import Partitions
from millstream.broker.server.long_work import LongWork
from millstream.broker.shares.dead_letter_topics import DeadLetterTopics
from millstream.broker.shares.dead_letters import DeadLetterWriter
from millstream.broker.shares.led_queue import LedQueue, QueueState
from millstream.broker.shares.partition_limits import PartitionLimits
from millstream.broker.shares.policies import Rules, named_groups, rules_of
from millstream.broker.shares.queue_reader import QueueReader
from millstream.broker.shares.queue_store import QueueStore
from millstream.broker.shares.resting import RestingQueues
from millstream.broker.shares.topic_users import TopicUsers
from millstream.broker.shares.turns import Turns
from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration, ConfigChange, ConfigOperation
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.cluster.metadata.records import ConfigResource, MetadataRecord
from millstream.cluster.metadata.service import MetadataService
from millstream.config.share_table import reset_duration_ms, resolve_group_config
from millstream.coordinator.shares.engine import QueueEngine
from millstream.coordinator.shares.queue_values import DeadLetter
from millstream.coordinator.shares.records import ShareKey
from millstream.doors.cluster import Coordinators
from millstream.doors.messages import Messages
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.records import InvalidRecordsError
from millstream.runtime.clock import Clock, SteadyTime
from millstream.storage.log import PartitionLog

_SWEEP_SECONDS = 60.0
_IDLE_MS = 600_000
_OPEN_AGAIN_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0


class Shares:
    def __init__(
        self,
        metadata: MetadataService,
        partitions: Partitions,
        coordinators: Coordinators,
        messages: Messages,
        defaults: Defaults,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        delete_before: Callable[[Partition, int], Awaitable[None]],
        read_failed: Callable[[Partition, int, KafkaError], None],
        most_queues: int,
        long_work: LongWork,
    ) -> None:
        self._long_work = long_work
        self._read_failed = read_failed
        self._most_queues = most_queues
        self._metadata = metadata
        self._partitions = partitions
        self._defaults = defaults
        self._clock = clock
        self._loop = loop
        self._spawn = spawn
        self._store = QueueStore(coordinators, clock)
        self._time = SteadyTime(clock)
        self._queues: dict[ShareKey, LedQueue] = {}
        self._loading: dict[ShareKey, asyncio.Task[None]] = {}
        self._opening: set[ShareKey] = set()
        self._turns = Turns(loop.call_soon, long_work.apart)
        self._letters = DeadLetterWriter(
            messages, DeadLetterTopics(metadata, defaults), self.rules, long_work.apart
        )
        self._limits = PartitionLimits(
            spawn, delete_before, lambda each: self._users.are_named(each.topic_id)
        )
        self._users = TopicUsers(coordinators, self._name_groups, spawn, self._limits.groups_known)
        self.resting = RestingQueues(
            coordinators,
            partitions,
            self._is_loaded,
            lambda partition: QueueReader(partition, read_failed, loop.call_soon),
            self._open_for_letters,
            spawn,
            long_work.pause,
            most_queues,
        )
        self._sweeper: asyncio.TimerHandle | None = None
        metadata.subscribe(self._metadata_changed)
        self.resting.leaders_changed()

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[LedQueue]:
        return iter(list(self._queues.values()))

    # -- finding

    def _is_loaded(self, key: ShareKey) -> bool:
        queue = self._queues.get(key)
        return queue is not None and queue.is_ready

    async def open(
        self, group_id: str, topic: str | bytes, index: int, *, from_earliest: bool = False
    ) -> LedQueue:
        """The group's queue, loaded, on a partition that this node leads; KafkaError if it does not.

        With `from_earliest`, a new group begins at the earliest offset if its settings do not say where.
        """
        partition = self._partitions.find_for_client(topic, index)
        key = ShareKey(group_id, UUID(bytes=bytes(partition.topic_id)), index)
        queue = self._queues.get(key)
        if queue is None or not queue.is_current:
            queue = self._make(key, partition, queue)
        if queue.state is QueueState.LOADING:
            loading = self._loading.get(key)
            if loading is None:
                loading = self._loading[key] = self._loop.create_task(self._load(queue, from_earliest))
                loading.add_done_callback(partial(self._loaded, key))
            await asyncio.shield(loading)
        self._partitions.require_newest(partition)
        return queue

    async def pause(self) -> None:
        """Let others have their turn of the event loop."""
        await self._long_work.pause()

    async def look_into(self, group_id: str, topic: str, index: int) -> LedQueue:
        """Like `open`, but never begins a queue: instead, returns a private one as it would begin now."""
        partition = self._partitions.find_for_client(topic, index)
        key = ShareKey(group_id, UUID(bytes=bytes(partition.topic_id)), index)
        if key in self._queues or await self._store.has_begun(key):
            return await self.open(group_id, topic, index)
        queue = self._new(key, partition)
        rules = self.rules(queue)
        start = await self._first_offset(partition, rules, -1, earliest=rules.is_default)
        queue.engine, queue.read_committed = QueueEngine(start, rules.policy), rules.read_committed
        return queue

    def _loaded(self, key: ShareKey, loading: "asyncio.Task[None]") -> None:
        self._loading.pop(key, None)
        # The caller may have gone: mark the error as retrieved.
        if not loading.cancelled():
            loading.exception()

    def opened(self, group_id: str, topic_id: UUID, index: int) -> LedQueue | None:
        """The queue if it is in memory, perhaps still loading."""
        queue = self._queues.get(ShareKey(group_id, topic_id, index))
        return queue if queue is not None and queue.is_current else None

    def release_member(self, group_id: str, member: str) -> list[LedQueue]:
        """Release the member's locks on this node; returns the queues that had any."""
        held = [each for each in self if each.key.group_id == group_id and each.engine.held(member)]
        for queue in held:
            queue.release_member(member)
        return held

    def reload(self, group_id: str, topic: str) -> None:
        """Close the group's queues on a topic: they are loaded again when they are next used."""
        for queue in self:
            if (queue.key.group_id, queue.partition.topic) == (group_id, topic):
                self._drop(queue, queue.partition.not_leader())
        for partition in self._partitions.of_topic(topic):
            self.resting.ask_again(partition)

    def _make(self, key: ShareKey, partition: Partition, former: LedQueue | None) -> LedQueue:
        if former is not None:
            former.close(partition.not_leader())
        elif len(self._queues) >= self._most_queues:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"this node keeps no more than {self._most_queues} queues (performance.max_queues)",
            )
        queue = self._queues[key] = self._new(key, partition)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        return queue

    def _new(self, key: ShareKey, partition: Partition) -> LedQueue:
        return LedQueue(
            key,
            partition,
            self._store,
            self._time,
            self._loop,
            self._write_letters,
            self._limits.settled,
            self._forget,
            self._read_failed,
            self._turns,
        )

    async def _load(self, queue: LedQueue, from_earliest: bool) -> None:
        rules = self.rules(queue)
        earliest = from_earliest and rules.is_default
        try:
            if rules.keeps_count:
                await self._name_groups(queue.partition, frozenset((queue.key.group_id,)))
            stored = await self._store.load(
                queue.key,
                queue.partition.topic,
                queue.leader_epoch,
                partial(_kept_of, queue.partition),
                lambda wish: self._first_offset(queue.partition, rules, wish, earliest=earliest),
            )
        except BaseException as error:
            refused = error if isinstance(error, KafkaError) else queue.partition.not_leader()
            self._drop(queue, refused)
            raise refused from error
        if not queue.is_current:
            self._drop(queue, queue.partition.not_leader())
            raise queue.partition.not_leader()
        rules = self.rules(queue)
        queue.begin(
            QueueEngine(stored.start, rules.policy, stored.batches), read_committed=rules.read_committed
        )
        self._watch(queue, rules)

    async def _name_groups(self, partition: Partition, groups: frozenset[str]) -> None:
        """Add the groups to the topic's `queue.groups`, so that a new leader knows whose queues count."""
        new = sorted(groups - partition.log.config.queue_groups)
        for group_id in new:
            if "," in group_id or group_id != group_id.strip():
                raise KafkaError(
                    ErrorCode.INVALID_GROUP_ID,
                    f"{partition.topic} goes by its groups (queue.groups): {group_id!r} has a comma, or begins or"
                    " ends with a blank",
                )
        if new:
            await self._change_groups(partition.topic, ",".join(new), ConfigOperation.APPEND)

    async def leave(self, topic: TopicImage, group_id: str) -> None:
        """The group is deleted, or begins again: remove it from `queue.groups`, so that nothing waits for it."""
        if group_id in named_groups(topic):
            await self._change_groups(topic.name, group_id, ConfigOperation.SUBTRACT)

    async def _change_groups(self, topic: str, groups: str, operation: ConfigOperation) -> None:
        change = ConfigChange("queue.groups", groups, operation)
        alteration = ConfigAlteration(ConfigResource.TOPIC, topic, (change,))
        for outcome in await self._metadata.submit(AlterConfigs((alteration,), defaults=self._defaults)):
            if outcome.error is not None:
                raise outcome.error

    def _watch(self, queue: LedQueue, rules: Rules) -> None:
        self._limits.watch(queue, rules.topic)
        if rules.keeps_count:
            self._users.name(queue.partition)
            self._open_others(queue.partition)
        else:
            self._users.forget(queue.partition)

    def admit(self, partition: Partition, count: int) -> None:
        """KafkaError if so many more records may not be appended."""
        self._open_others(partition)
        self._limits.admit(partition, count)

    def _open_others(self, partition: Partition, pause_s: float = 0.0) -> None:
        """Open the queues of all groups: deletions and refusals depend on their progress."""
        for group_id in partition.log.config.queue_groups:
            key = ShareKey(group_id, UUID(bytes=bytes(partition.topic_id)), partition.index)
            self._begin_to_open(key, partition, pause_s, self._counts)

    def _open_for_letters(self, key: ShareKey, partition: Partition) -> None:
        """Dead letters wait to be written, and perhaps no consumer comes."""
        self._begin_to_open(key, partition, 0.0, self._is_led)

    def _begin_to_open(
        self,
        key: ShareKey,
        partition: Partition,
        pause_s: float,
        is_wanted: Callable[[ShareKey, Partition], bool],
    ) -> None:
        if key not in self._queues and key not in self._opening:
            self._opening.add(key)
            self._spawn(self._open_quietly(key, partition, pause_s, is_wanted), "opening a queue")

    async def _open_quietly(
        self,
        key: ShareKey,
        partition: Partition,
        pause_s: float,
        is_wanted: Callable[[ShareKey, Partition], bool],
    ) -> None:
        """Retry while the queue is wanted, less and less often, because the reason may last."""
        try:
            await asyncio.sleep(pause_s)
            while is_wanted(key, partition):
                try:
                    # A group that is about to come through a Millstream door must miss nothing.
                    await self.open(key.group_id, partition.topic, partition.index, from_earliest=True)
                    return
                except KafkaError:
                    pause_s = min(2 * pause_s or _OPEN_AGAIN_SECONDS, _LONGEST_PAUSE_SECONDS)
                    await asyncio.sleep(pause_s)
        finally:
            self._opening.discard(key)

    def _is_led(self, _key: ShareKey, partition: Partition) -> bool:
        return self._partitions.get(partition.topic, partition.index) is partition and partition.is_leader

    def _counts(self, key: ShareKey, partition: Partition) -> bool:
        return self._is_led(key, partition) and key.group_id in partition.log.config.queue_groups

    def _drop(self, queue: LedQueue, error: KafkaError) -> None:
        queue.close(error)

    def _forget(self, queue: LedQueue) -> None:
        """The queue is closed: forget it."""
        if self._queues.get(queue.key) is queue:
            del self._queues[queue.key]
            self._store.forget(queue.key)
            is_watched = self._limits.watches(queue)
            self._limits.closed(queue)
            self._users.forget(queue.partition)
            if queue.partition.is_leader:
                self.resting.ask_again(queue.partition)
            if is_watched and queue.partition.is_leader:
                # A write has failed. The other groups wait for this one, even if it is no longer used.
                self._open_others(queue.partition, _OPEN_AGAIN_SECONDS)

    def _sweep(self) -> None:
        """Close queues that nobody has used for long: they are loaded again on the next use."""
        since_ms = self._time.now_ms() - _IDLE_MS
        for queue in self:
            if queue.is_idle(since_ms) and not self._limits.watches(queue):
                self._drop(queue, queue.partition.not_leader())
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep) if self._queues else None

    # -- settings

    def lock_ms(self, group_id: str) -> int:
        """How long a group's locks last, by its settings."""
        image = self._metadata.image
        broker: Mapping[str, str] = self._defaults.broker_configs(image)
        return resolve_group_config(
            image.group_configs.get(group_id, {}), broker
        ).share_record_lock_duration_ms

    def rules(self, queue: LedQueue) -> Rules:
        image = self._metadata.image
        broker: Mapping[str, str] = self._defaults.broker_configs(image)
        return rules_of(image, broker, queue.key.group_id, queue.partition.log.config)

    async def _first_offset(self, partition: Partition, rules: Rules, wish: int, *, earliest: bool) -> int:
        log = partition.log
        if wish >= 0 or earliest:
            return max(wish, log.log_start_offset)
        reset = rules.group.share_auto_offset_reset
        if reset == "earliest":
            return log.log_start_offset
        duration_ms = reset_duration_ms(reset)
        if duration_ms is None:
            return partition.high_watermark
        first = await self._offset_at(log, self._clock.now_ms() - duration_ms)
        return partition.high_watermark if first is None else min(first, partition.high_watermark)

    async def _offset_at(self, log: PartitionLog, timestamp: int) -> int | None:
        try:
            found = await offset_at(self._long_work, log, timestamp)
            return None if found is None else found.offset
        except InvalidRecordsError:
            # A batch cannot be opened: begin too early rather than never.
            batch = await first_batch(self._long_work, log, timestamp)
            return None if batch is None else max(batch.header.base_offset, log.log_start_offset)

    def _metadata_changed(
        self, old: MetadataImage, new: MetadataImage, _records: tuple[MetadataRecord, ...]
    ) -> None:
        if old.topics is new.topics and old.group_configs is new.group_configs:
            return
        if old.topics is not new.topics:
            self.resting.leaders_changed()
        for queue in self:
            topic = new.topic_by_id(queue.key.topic_id)
            if not queue.is_current or topic is None or _has_left(queue.key.group_id, old, topic):
                self._drop(queue, queue.partition.not_leader())
        # Logs get their new settings from the same change, some of them after this call.
        self._loop.call_soon(self._apply_rules)

    def _apply_rules(self) -> None:
        for queue in self:
            if queue.state is QueueState.ACTIVE:
                rules = self.rules(queue)
                queue.set_policy(rules.policy, read_committed=rules.read_committed)
                self._watch(queue, rules)

    # -- dead letters

    def _write_letters(self, queue: LedQueue, letters: Sequence[DeadLetter]) -> None:
        if self._letters.add(queue, letters):
            self._spawn(self._letters.write_all(queue), "dead letters")

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for queue in self:
            self._drop(queue, queue.partition.not_leader())


def _kept_of(partition: Partition, leader_epoch: int) -> int:
    """The offset up to which this log has the records of leaders up to an epoch; later ones of theirs were lost."""
    return partition.log.end_offset_for_epoch(leader_epoch, partition.leader_epoch)[1]


def _has_left(group_id: str, old: MetadataImage, topic: TopicImage) -> bool:
    """Whether the group was removed from the topic's `queue.groups`."""
    former = old.topic_by_id(topic.topic_id)
    return (
        former is not None
        and former is not topic
        and group_id in named_groups(former)
        and group_id not in named_groups(topic)
    )
