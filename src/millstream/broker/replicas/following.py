"""Applies a leader's replies to the logs of the partitions that this node follows."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from millstream.broker.machine import Machine
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.replicas.throttle import ReplicaThrottle
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.replication import EpochEnd, truncation_offset
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Counter
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition
from millstream.protocol.record_batch import BatchHeader, iter_batches
from millstream.runtime.sometimes import sometimes
from millstream.storage.log_health import LogWork

log = get_logger("millstream.replicas")

PARTITION_BYTES = 2 << 20
_APPENDED_AT_ONCE = 1000
_CUT_AT_ONCE = 100
_BUSY_PAUSE_SECONDS = 0.02
# Before a partition that failed is asked for again. A full disk may last for hours.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.5
# Transient: one of the two nodes does not know of a change yet, or the leader is just starting.
_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Copying(msgspec.Struct, eq=False):
    """Shared by all fetchers of this node; keeps track of truncations under way."""

    node_id: int
    machine: Machine
    metadata: MetadataService
    flusher: Flusher
    faults: StorageFaults
    throttle: ReplicaThrottle
    max_wait_ms: int
    """How long a leader may wait for something to send."""
    replicated_bytes: Counter
    _cuts: "dict[asyncio.Task[None], None]" = msgspec.field(default_factory=dict)

    def begin_cut(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Truncate a log in a task of its own; the node does not stop in the middle of it."""
        task = self.machine.loop.create_task(work, name="truncation")
        self._cuts[task] = None
        task.add_done_callback(self._cut_ended)
        return task

    async def finish_cuts(self) -> None:
        await asyncio.gather(*self._cuts, return_exceptions=True)

    def _cut_ended(self, task: "asyncio.Task[None]") -> None:
        del self._cuts[task]
        # The waiting task may have ended: then nobody needs the error.
        if not task.cancelled():
            task.exception()


class Superseded(Exception):
    """The leader changed meanwhile: replies of the previous leader no longer count."""


class Following(msgspec.Struct, eq=False):
    """`asked_from` is the first request in this leader epoch; replies to earlier requests are dropped."""

    copying: Copying
    partition: Partition
    leader_epoch: int
    asked_from: int = -1
    is_over: bool = False
    logged_error: ErrorCode = ErrorCode.NONE
    reported_range: tuple[int, int] | None = None
    """The log's start and end in the last request."""
    _pause_seconds: float = _FIRST_PAUSE_SECONDS

    async def begin(self) -> None:
        """Before the first request: flush what this node wrote as a leader, and forget epochs in which it wrote
        nothing.
        """
        if self.has_to_sync:
            await self.copying.flusher.sync(self.partition)
        self._require_current()
        self.partition.log.end_epochs()

    @property
    def has_to_sync(self) -> bool:
        return self.partition.log.has_unsynced or self.partition.flushing

    @property
    def is_fully_durable(self) -> bool:
        """Everything in the log may be reported to the leader: in a durable topic that is what is on disk."""
        return self.partition.durable_end_offset >= self.partition.log.log_end_offset

    def request(self) -> FetchPartition:
        target = self.partition.log
        offset = target.log_end_offset
        self.reported_range = self._range
        return FetchPartition(
            self.partition.index,
            self.leader_epoch,
            offset,
            target.epochs.epoch_of(offset - 1) if offset > target.log_start_offset else -1,
            target.log_start_offset,
            PARTITION_BYTES,
            bool(self.partition.awaits_repair),
        )

    @property
    def has_moved(self) -> bool:
        """Whether the log's start or end has changed since the last request."""
        return self.reported_range != self._range

    @property
    def _range(self) -> tuple[int, int]:
        target = self.partition.log
        return target.log_start_offset, target.log_end_offset

    def may_wait_for(self, reply: FetchedPartition) -> bool:
        """Whether the reply must go to `handle`, because it may have to wait for the disk."""
        return bool(
            reply.error
            or reply.diverging_epoch is not None
            or (len(reply.records) and (self.partition.log.is_flushed_first or self._is_empty))
            or self._has_deleted(reply)
        )

    def _has_deleted(self, reply: FetchedPartition) -> bool:
        return reply.log_start_offset > self.partition.log.log_start_offset

    @property
    def _is_empty(self) -> bool:
        return self.partition.log.log_start_offset == self.partition.log.log_end_offset

    def take(self, reply: FetchedPartition) -> bool:
        """As `handle`, for a reply that need not wait for the disk; False when `handle` must append the rest of it."""
        if self.partition.log.offline is not None:
            raise self.partition.log.offline
        if len(reply.records):
            data, batches = self._new_batches(memoryview(reply.records))
            count, _ = self._append(data, batches[:_APPENDED_AT_ONCE])
            if count < len(batches):
                return False
        self._taken(reply)
        return True

    async def handle(self, reply: FetchedPartition) -> None:
        """Raises KafkaError when the partition is to be asked for again after a pause."""
        self._require_current()
        if reply.error:
            await self._handle_error(reply)
            return
        if reply.diverging_epoch is not None:
            target = self.partition.log
            offset = truncation_offset(target.epochs, target.log_end_offset, EpochEnd(*reply.diverging_epoch))
            await self._truncate(offset, "the leader's log differs from here on")
            return
        if len(reply.records):
            if self._is_empty:
                await self._begin_with(memoryview(reply.records))
            await self._append_all(memoryview(reply.records))
        has_deleted = self._has_deleted(reply)
        # Records count for the leader, and for the next request, only when they are on disk. And the log's start moves
        # no further than what is on disk.
        if has_deleted or (len(reply.records) and self.partition.log.is_flushed_first):
            await self._sync()
        self._taken(reply)
        if has_deleted:
            # The leader confirms the deletion once this node reports its new start.
            await self._sync()

    async def _sync(self) -> None:
        await self.copying.flusher.sync(self.partition)
        self._require_current()

    def next_pause(self) -> float:
        """Seconds; longer after each failure in a row."""
        pause = self._pause_seconds
        self._pause_seconds = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return pause

    def _taken(self, reply: FetchedPartition) -> None:
        self.logged_error = ErrorCode.NONE
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self.partition.replicated(reply.high_watermark)
        self._follow_start(reply.log_start_offset)

    def _require_current(self) -> None:
        if self.is_over:
            raise Superseded
        if self.partition.log.offline is not None:
            raise self.partition.log.offline

    async def _begin_with(self, data: memoryview) -> None:
        """Make room for an empty log's first batch: the leader sends it whole, even if its log starts within it."""
        _, first = next(iter_batches(data))
        if first.base_offset < self.partition.log.log_end_offset <= first.last_offset:
            sometimes("a replica began within a batch")
            await self._truncate(first.base_offset, "the leader's log begins within a batch")

    async def _append_all(self, data: memoryview) -> None:
        whole_bytes = len(data)
        data, batches = self._new_batches(data)
        if batches and len(data) < whole_bytes:
            # `take` appended the first of them, and perhaps began segments.
            await self._sync()
        while batches:
            some = batches[:_APPENDED_AT_ONCE]
            count, size_bytes = self._append(data, some)
            data, batches = data[size_bytes:], batches[count:]
            if count < len(some):
                # New segments stay open until they are synced.
                await self._sync()

    def _new_batches(self, data: memoryview) -> tuple[memoryview, list[BatchHeader]]:
        target = self.partition.log
        start, batches = 0, []
        for position, header in iter_batches(data):
            is_here = header.last_offset < target.log_end_offset
            if is_here and header.leader_epoch == target.epochs.epoch_of(header.base_offset):
                # Sent twice, because a request overtook the last reply: within an epoch an offset has one batch.
                start = position + header.size_bytes
            else:
                batches.append(header)
        return data[start:], batches

    def _append(self, data: memoryview, batches: list[BatchHeader]) -> tuple[int, int]:
        """Returns how many batches were appended, and their size."""
        if not batches:
            return 0, 0
        count = self.partition.log.append_replicated(data, batches, self.copying.machine.clock.now_ms())
        size_bytes = sum(each.size_bytes for each in batches[:count])
        self.copying.flusher.flush_soon(self.partition)
        self.copying.replicated_bytes.value += size_bytes
        return count, size_bytes

    async def _handle_error(self, reply: FetchedPartition) -> None:
        target = self.partition.log
        if reply.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            start, end = reply.log_start_offset, max(reply.high_watermark, reply.log_start_offset)
            offset = start if target.log_end_offset < start else min(end, target.log_end_offset)
            if offset == target.log_end_offset:
                raise KafkaError(reply.error, "the leader's log ends before this replica's next offset")
            await self._truncate(offset, "the leader's log does not reach here")
            return
        if reply.error not in _PASSING and reply.error != self.logged_error:
            # Logged once: it is retried many times a second.
            self.logged_error = reply.error
            log.warning(
                "cannot follow",
                topic=self.partition.topic,
                partition=self.partition.index,
                error=reply.error.name,
            )
        raise KafkaError(reply.error)

    async def _truncate(self, offset: int, reason: str) -> None:
        """Truncate the log. Nothing else writes to it meanwhile: the partition is asked for again only afterwards."""
        partition, target = self.partition, self.partition.log
        if offset == target.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, "the leader's log differs from this one but also ends here"
            )
        sometimes("a follower cut its log")
        is_committed = offset < partition.high_watermark and not self._is_empty
        (log.error if is_committed else log.info)(
            "truncating",
            topic=partition.topic,
            partition=partition.index,
            end=target.log_end_offset,
            to=offset,
            high_watermark=partition.high_watermark,
            leader_epoch=self.leader_epoch,
            reason=reason,
        )
        while target.is_being_changed:  # noqa: ASYNC110 - cuts are rare
            await asyncio.sleep(_BUSY_PAUSE_SECONDS)
        self._require_current()
        target.work = LogWork.TRUNCATING
        # Never left half done: the node's stop waits for it.
        await asyncio.shield(self.copying.begin_cut(self._cut(offset)))

    async def _cut(self, offset: int) -> None:
        target = self.partition.log
        is_within = target.log_start_offset <= offset <= target.log_end_offset
        kept = target.segments.find(offset) if is_within else 0
        try:
            while (
                len(target.segments) - kept > _CUT_AT_ONCE
                and (stage := target.segments[-_CUT_AT_ONCE].base_offset) > target.log_start_offset
            ):
                # Some at a time: a cut removes its segments in one turn of the loop.
                await self._prepare_and_cut(stage)
            await self._prepare_and_cut(offset)
        finally:
            target.work = LogWork.NOTHING

    async def _prepare_and_cut(self, offset: int) -> None:
        partition, target, copying = self.partition, self.partition.log, self.copying
        machine = copying.machine
        # A flush may remove files that are needed again from now on.
        await self._settle()
        self._require_current()
        known = copying.metadata.image.partition(partition.topic, partition.index)
        is_counted_on = known is None or copying.node_id in known.counted_on
        truncation = target.begin_truncation(offset, machine.clock.now_ms(), may_cut_more=not is_counted_on)
        try:
            await machine.workers.run(lambda: truncation.prepare(machine.disk))
        except OSError as error:
            target.give_up(truncation)
            raise target.health.write_failed(error) from error
        if target.is_flushing:
            await self._settle()
        if self.is_over or target.offline is not None:
            # This node may lead now, and append to the present end.
            target.give_up(truncation)
            await copying.flusher.sync(partition)
            raise Superseded
        target.truncate(truncation)
        partition.truncated()
        await copying.flusher.sync(partition)
        self._require_current()

    async def _settle(self) -> None:
        """Return when all is synced and no flush is under way."""
        await self.copying.flusher.sync(self.partition)
        while self.partition.log.is_flushing:
            await self.copying.flusher.sync(self.partition)

    def _follow_start(self, leader_start: int) -> None:
        target = self.partition.log
        start = min(leader_start, self.partition.high_watermark, target.flushed_offset)
        if start > target.log_start_offset:
            target.advance_start(start)
