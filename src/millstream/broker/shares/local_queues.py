"""The doors' interface to the queues of partitions that this node leads."""

from collections.abc import Awaitable, Callable, Sequence

from millstream.broker.shares import overview
from millstream.broker.shares.consumers import all_stored, await_and_acquire
from millstream.broker.shares.led_queue import SLICE, LedQueue
from millstream.broker.shares.shares import Shares
from millstream.broker.shares.taken import NOTHING, Taken, Wanted
from millstream.coordinator.shares import queue_values
from millstream.coordinator.shares.queue_values import Outcome
from millstream.doors.caller import Caller
from millstream.doors.partitions import LogRead, Place
from millstream.doors.queues import (
    MAX_REASON,
    SETTLED_BEFORE,
    Acquired,
    AcquiredRange,
    Settled,
    Settlement,
    SettlementKind,
    incarnation_of,
)
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.queue_call import LookAtQueues, PeekAtQueue, Peeked, Purged, PurgeQueue, QueueRows


class LocalQueues:
    def __init__(self, shares: Callable[[], Shares]) -> None:
        """`shares` creates them when queues are first needed."""
        self._shares = shares

    async def acquire(
        self,
        _caller: Caller,
        group: str,
        member: str,
        place: Place,
        *,
        max_messages: int,
        max_bytes: int,
        max_wait_s: float,
        max_held: int | None = None,
        whole_batches: bool = False,
    ) -> Acquired:
        queue = await self._open(group, place)
        wanted = Wanted(max_messages, max_bytes, whole_batches=whole_batches, max_held=max_held)
        found = await await_and_acquire([queue], member, wanted, max_wait_s)
        return _acquired(queue, place, found[0].taken if found else NOTHING)

    async def settle(
        self,
        _caller: Caller,
        group: str,
        member: str,
        place: Place,
        settlements: Sequence[Settlement],
        *,
        together: bool = False,
    ) -> tuple[Settled, ...]:
        queue = await self._open(group, place)
        pause = self._shares().pause
        if together:
            outcomes = await _settle_together(queue, member, settlements, pause)
        else:
            outcomes = []
            for start in range(0, len(settlements), SLICE):
                if start:
                    await pause()
                some = settlements[start : start + SLICE]
                outcomes += [_settle_or_find_done(queue, member, each) for each in some]
        failed = await all_stored([queue])
        if queue in failed:
            refused = Settled(failed[queue].code, failed[queue].message)
            return tuple(each if each.error else refused for each in outcomes)
        return tuple(outcomes)

    async def release_all(self, _caller: Caller, group: str, member: str) -> None:
        await all_stored(self._shares().release_member(group, member))

    async def reload(self, _caller: Caller, group: str, topic: str) -> None:
        self._shares().reload(group, topic)

    async def look(self, _caller: Caller, request: LookAtQueues) -> QueueRows:
        return await overview.look(self._shares(), request)

    async def peek(self, _caller: Caller, request: PeekAtQueue) -> Peeked:
        return await overview.peek(self._shares(), request)

    async def purge(self, _caller: Caller, request: PurgeQueue) -> Purged:
        return await overview.purge(self._shares(), request)

    async def _open(self, group: str, place: Place) -> LedQueue:
        try:
            return await self._shares().open(group, place.topic, place.partition, from_earliest=True)
        except KafkaError as error:
            # Nothing was handed out or settled: the caller may retry at the new leader.
            raise NotDone.of(error) from error


def _settle_or_find_done(queue: LedQueue, member: str, given: Settlement) -> Settled:
    """Accepting again after a lost answer is not refused here; for Kafka's own clients it is, as in Kafka."""
    if not _is_of(queue, given):
        return _of_another(queue)
    outcome = _settle(queue, member, given)
    if (
        outcome.error is ErrorCode.INVALID_RECORD_STATE
        and given.kind is SettlementKind.ACCEPT
        and queue.engine.are_accepted(given.first_offset, given.last_offset)
    ):
        return Settled(message=SETTLED_BEFORE)
    return outcome


def _is_of(queue: LedQueue, given: Settlement) -> bool:
    """Whether the settlement is for this topic, and not for an earlier one of the same name."""
    return given.incarnation in (0, incarnation_of(queue.key.topic_id.bytes))


def _of_another(queue: LedQueue) -> Settled:
    return Settled(ErrorCode.INVALID_RECORD_STATE, f"{queue.partition.topic} was made again since")


def _settle(queue: LedQueue, member: str, given: Settlement) -> Settled:
    start = queue.engine.start
    try:
        queue.settle(member, (_settlement(given),))
    except KafkaError as error:
        return Settled(error.code, error.message)
    return _settled(given, start)


async def _settle_together(
    queue: LedQueue, member: str, given: Sequence[Settlement], pause: Callable[[], Awaitable[None]]
) -> list[Settled]:
    """Settle all of them, or none."""
    if not all(_is_of(queue, each) for each in given):
        return [_of_another(queue)] * len(given)
    start = queue.engine.start
    try:
        await queue.settle_in_slices(member, [_settlement(each) for each in given], pause)
    except KafkaError as error:
        return [Settled(error.code, error.message)] * len(given)
    return [_settled(each, start) for each in given]


def _settlement(given: Settlement) -> queue_values.Settlement:
    return queue_values.Settlement(
        given.first_offset,
        given.last_offset,
        Outcome(given.kind),
        delay_ms=given.delay_ms or None,
        reason=given.reason[:MAX_REASON],
    )


def _settled(given: Settlement, start: int) -> Settled:
    """`start` is where the queue began before."""
    return Settled(message=SETTLED_BEFORE if given.last_offset < start else "")


def _acquired(queue: LedQueue, place: Place, taken: Taken) -> Acquired:
    first = taken.ranges[0].first if taken.ranges else queue.engine.start
    last = taken.ranges[-1].last + 1 if taken.ranges else first
    batches = taken.batches[0] if len(taken.batches) == 1 else memoryview(b"".join(taken.batches))
    partition = queue.partition
    read = LogRead(
        place,
        first,
        last,
        batches,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start_offset,
    )
    ranges = tuple(AcquiredRange(each.first, each.last, each.count) for each in taken.ranges)
    incarnation = incarnation_of(queue.key.topic_id.bytes)
    return Acquired(read, ranges, taken.until_ms, taken.lock_ms, incarnation)
