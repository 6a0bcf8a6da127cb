"""Queues with an acknowledgement for each message: share groups, free of the door that a consumer came by.

A consumer is a group and a member's name, which the door chooses: an acknowledgement may come through another node and
another connection than its delivery, as long as it names the same member.
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from millstream.doors.caller import Caller
from millstream.doors.partitions import LogRead, Place
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import LookAtQueues, PeekAtQueue, Peeked, Purged, PurgeQueue, QueueRows
from millstream.protocol.record_batch import BatchHeader
from millstream.protocol.records import Record


class AcquiredRange(msgspec.Struct, frozen=True):
    first_offset: int
    last_offset: int
    delivery_count: int
    """How often these were handed out, this time included."""


def incarnation_of(topic_id: bytes) -> int:
    """What tells a topic from another of its name, made later: short enough for the ids of messages, and never 0."""
    return int.from_bytes(topic_id[:4], "big") or 1


class Delivery(msgspec.Struct, frozen=True):
    record: Record
    delivery_count: int
    locked_until_ms: int
    incarnation: int = 0
    """As in `Acquired`."""


class Acquired(msgspec.Struct, frozen=True):
    """What was handed out. Records of the batches that are in no range are not for the caller."""

    read: LogRead
    ranges: tuple[AcquiredRange, ...]
    locked_until_ms: int
    """When the messages become available to others, in milliseconds since 1970 by the leader's clock."""
    lock_ms: int
    """The same as a length of time, for who has another clock."""
    incarnation: int = 0
    """The topic's, for settlements; 0 where an older node does not say."""

    def offsets(self) -> Iterator[int]:
        return chain.from_iterable(range(each.first_offset, each.last_offset + 1) for each in self.ranges)

    def undelivered(self) -> tuple["Settlement", ...]:
        """For who has nobody to give it to."""
        return tuple(
            Settlement(
                each.first_offset,
                each.last_offset,
                SettlementKind.UNDELIVERED,
                incarnation=self.incarnation,
            )
            for each in self.ranges
        )

    def deliveries(self, records: Iterable[Record] | None = None) -> Iterator[Delivery]:
        """The records in the ranges. An offset in a range without a record (compacted, a marker) has none.

        `records` are those of `read`, where they were decoded before.
        """
        ranges = iter(self.ranges)
        current = next(ranges, None)
        for record in self.read.records() if records is None else records:
            while current is not None and current.last_offset < record.offset:
                current = next(ranges, None)
            if current is None:
                return
            if current.first_offset <= record.offset:
                yield Delivery(record, current.delivery_count, self.locked_until_ms, self.incarnation)


class SettlementKind(enum.IntEnum):
    """Kafka's numbers; from 1000 on they are ours."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    UNDELIVERED = 1000
    """It never left the door, so that time does not count as a delivery."""
    ASK = 1001
    """Whether it is still the member's; changes nothing."""


class Settlement(msgspec.Struct, frozen=True):
    first_offset: int
    last_offset: int
    kind: SettlementKind
    delay_ms: int = 0
    """With RELEASE: not to be delivered again before that."""
    reason: str = ""
    """With REJECT: kept with the dead letter."""
    incarnation: int = 0
    """Of the topic that the messages were of: of one that was made again since nothing is settled. 0 does not say."""


MAX_REASON = 1_000
"""Characters of a reason that are kept: a letter must fit into its topic."""
SETTLED_BEFORE = "settled before"
UNREADABLE = "its batch cannot be opened"
"""Why a door rejects a message that it cannot give to anybody."""


class Unreadable:
    """Offsets in batches that cannot be opened. A batch may claim any number of records, so only its ends are kept."""

    def __init__(self) -> None:
        self._batches: list[BatchHeader] = []

    def add(self, batch: BatchHeader, _error: KafkaError) -> None:
        self._batches.append(batch)

    def __contains__(self, offset: int) -> bool:
        return any(each.base_offset <= offset <= each.last_offset for each in self._batches)


class Settled(msgspec.Struct, frozen=True):
    """SETTLED_BEFORE comes without an error: all of it lies before the group's first open message, as Kafka has it, or
    was to be accepted and has been, by whomever.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class Queues(Protocol):
    """The engine where the partition is led. KafkaErrors as with `PartitionAccess`."""

    async def acquire(
        self,
        caller: Caller,
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
        """Lock messages for the member; waits for some, and comes back empty when the time is over.

        With `max_held` the member gets only so many that it holds at most that number in the partition, and waits while
        it does: an acknowledgement, through whichever node, frees a place. With `whole_batches` it gets no part of a
        batch, unless one batch alone is more than `max_messages`.
        If the caller stops waiting (cancels), what it would have got is released.
        """
        ...

    async def settle(
        self,
        caller: Caller,
        group: str,
        member: str,
        place: Place,
        settlements: Sequence[Settlement],
        *,
        together: bool = False,
    ) -> tuple[Settled, ...]:
        """One outcome for each, in order, when it is durable: INVALID_RECORD_STATE for what is not the member's.

        With `together` all are settled, or none.
        """
        ...

    async def release_all(self, caller: Caller, group: str, member: str) -> None:
        """The member has gone: what it holds, on any node, is available to others."""
        ...

    # -- for administrators

    async def reload(self, caller: Caller, group: str, topic: str) -> None:
        """What is stored of the group's queues on the topic was changed: leaders let go of what they know of it."""
        ...

    async def look(self, caller: Caller, request: LookAtQueues) -> QueueRows:
        """Queues in use; one that was not used since its leader started is not among them."""
        ...

    async def peek(self, caller: Caller, request: PeekAtQueue) -> Peeked:
        """Messages that are not settled; nothing is locked."""
        ...

    async def purge(self, caller: Caller, request: PurgeQueue) -> Purged:
        """Give up what waits in a partition; what is out for delivery is not touched."""
        ...
