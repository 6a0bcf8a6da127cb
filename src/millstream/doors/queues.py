"""Queues with an acknowledgement for each message: share groups, the same for all doors.

A consumer is a group and a member name that the door chooses. An acknowledgement may come through another node or
connection than the delivery, as long as it names the same member.
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
    """How often these were delivered, including this time."""


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
    """Acquired messages. Records of the batches outside the ranges are not for the caller."""

    read: LogRead
    ranges: tuple[AcquiredRange, ...]
    locked_until_ms: int
    """When the messages become available to others, in milliseconds since 1970 by the leader's clock."""
    lock_ms: int
    """The same as a duration, independent of clocks."""
    incarnation: int = 0
    """The topic's, for settlements. Older nodes do not send it."""

    def offsets(self) -> Iterator[int]:
        return chain.from_iterable(range(each.first_offset, each.last_offset + 1) for each in self.ranges)

    def undelivered(self) -> tuple["Settlement", ...]:
        """Settlements that return everything undelivered."""
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
        """The records in the ranges. Offsets without a record (compacted, a marker) are skipped.

        `records` are those of `read`, if they are already decoded.
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
    """Kafka's numbers; ours begin at 1000."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    UNDELIVERED = 1000
    """It never left the door, so this does not count as a delivery."""
    ASK = 1001
    """Asks whether it is still the member's; changes nothing."""


class Settlement(msgspec.Struct, frozen=True):
    first_offset: int
    last_offset: int
    kind: SettlementKind
    delay_ms: int = 0
    """With RELEASE: delay before the next delivery."""
    reason: str = ""
    """With REJECT: stored with the dead letter."""
    incarnation: int = 0
    """The messages' topic's: nothing is settled in another of the same name. 0: not known."""


MAX_REASON = 1_000
"""Stored characters of a reason: a dead letter must fit into its topic."""
SETTLED_BEFORE = "settled before"
UNREADABLE = "its batch cannot be opened"
"""The reason with which a door rejects a message that it cannot read."""


class Unreadable:
    """Offsets in unreadable batches. A batch may claim any number of records, so only its bounds are kept."""

    def __init__(self) -> None:
        self._batches: list[BatchHeader] = []

    def add(self, batch: BatchHeader, _error: KafkaError) -> None:
        self._batches.append(batch)

    def __contains__(self, offset: int) -> bool:
        return any(each.base_offset <= offset <= each.last_offset for each in self._batches)


class Settled(msgspec.Struct, frozen=True):
    """SETTLED_BEFORE is not an error: everything lies before the group's first open message, as in Kafka, or was to be
    accepted and already is, by any member.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class Queues(Protocol):
    """Works at the leader of the partition. KafkaErrors as for `PartitionAccess`."""

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
        """Lock messages for the member; waits for some, and returns empty after `max_wait_s`.

        With `max_held` the member holds at most that many messages of the partition, and waits while it holds them all;
        an acknowledgement through any node makes room. With `whole_batches` it gets only whole batches, unless one
        batch alone exceeds `max_messages`. If the caller cancels, messages acquired for it are released.
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
        """One outcome for each, in order, once durable; INVALID_RECORD_STATE for what the member does not hold.

        With `together`, either all are settled, or none.
        """
        ...

    async def release_all(self, caller: Caller, group: str, member: str) -> None:
        """The member has left: release what it holds, on all nodes."""
        ...

    # -- for administrators

    async def reload(self, caller: Caller, group: str, topic: str) -> None:
        """The stored state of the group's queues on the topic was changed: leaders drop their copy."""
        ...

    async def look(self, caller: Caller, request: LookAtQueues) -> QueueRows:
        """All queues, also those that no consumer uses; KafkaError while the coordinators of these do not answer."""
        ...

    async def peek(self, caller: Caller, request: PeekAtQueue) -> Peeked:
        """Unsettled messages; locks nothing."""
        ...

    async def purge(self, caller: Caller, request: PurgeQueue) -> Purged:
        """Discard waiting messages of a partition; messages out for delivery are not touched."""
        ...
