"""Millstream's own queue requests, for `millstream queue` and the Python client."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from millstream.broker.shares.anywhere import led, take_anywhere
from millstream.broker.shares.overview import look, peek, purge
from millstream.broker.shares.shares import Shares
from millstream.broker.shares.taken import check_member
from millstream.cluster.metadata.service import MetadataService
from millstream.doors.access import Authoriser, Operation, Permission, Resource
from millstream.doors.caller import Caller
from millstream.doors.partitions import Place
from millstream.doors.queues import Acquired, Queues, Settlement, SettlementKind
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import (
    LookAtQueues,
    PeekAtQueue,
    Peeked,
    Purged,
    PurgeQueue,
    QueueRange,
    QueueRequest,
    QueueRows,
    Released,
    ReleaseMember,
    SettledAll,
    SettleMessages,
    TakeMessages,
    Taken,
    TakenFrom,
)

_MOST_MESSAGES = 10_000
_MOST_BYTES = 16 << 20
_LONGEST_WAIT_MS = 60_000
_OUTCOMES = frozenset(SettlementKind) - {SettlementKind.ASK}


class QueueCalls:
    def __init__(
        self, queues: Queues, shares: Shares, metadata: MetadataService, authoriser: Authoriser
    ) -> None:
        """`queues` covers all nodes, `shares` only this one."""
        self._queues = queues
        self._shares = shares
        self._metadata = metadata
        self._authoriser = authoriser
        self._turn = 0
        self._handlers: Final[dict[type, Callable[[Caller, Any], Awaitable[msgspec.Struct]]]] = {
            TakeMessages: self._take,
            SettleMessages: self._settle,
            ReleaseMember: self._release,
            LookAtQueues: self._look,
            PeekAtQueue: self._peek,
            PurgeQueue: self._purge,
        }

    async def answer(self, caller: Caller, request: QueueRequest) -> msgspec.Struct:
        """KafkaError if the request is refused."""
        if not request.group and not isinstance(request, LookAtQueues):
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group must not be empty")
        self._authorise(caller, request)
        return await self._handlers[type(request)](caller, request)

    def _authorise(self, caller: Caller, request: QueueRequest) -> None:
        if isinstance(request, LookAtQueues) and not request.group:
            self._authoriser.check(caller, Permission(Operation.DESCRIBE, Resource.CLUSTER))
            return
        self._authoriser.check(caller, Permission(Operation.READ, Resource.GROUP, request.group))
        topic = "" if isinstance(request, ReleaseMember) else request.topic
        if topic:
            self._authoriser.check(caller, Permission(Operation.READ, Resource.TOPIC, topic))

    # -- queues on any node

    async def _take(self, caller: Caller, request: TakeMessages) -> Taken:
        check_member(request.member)
        if request.max_messages <= 0 or request.max_bytes <= 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a member takes at least one message, and one byte")
        places = self._places(request.topic)
        self._turn += 1
        first = self._turn % len(places)
        places = places[first:] + places[:first]
        wait_s = min(request.max_wait_ms, _LONGEST_WAIT_MS) / 1000
        return _taken(
            await take_anywhere(
                lambda place, seconds: self._acquire(caller, request, place, seconds),
                lambda each: self._give_back(caller, request, each),
                places,
                wait_s,
            )
        )

    async def _acquire(self, caller: Caller, request: TakeMessages, place: Place, wait_s: float) -> Acquired:
        return await self._queues.acquire(
            caller,
            request.group,
            request.member,
            place,
            max_messages=min(request.max_messages, _MOST_MESSAGES),
            max_bytes=min(request.max_bytes, _MOST_BYTES),
            max_wait_s=wait_s,
            max_held=request.max_held,
        )

    async def _give_back(self, caller: Caller, request: TakeMessages, acquired: Acquired) -> None:
        settlements = acquired.undelivered()
        await self._queues.settle(caller, request.group, request.member, acquired.read.place, settlements)

    def _places(self, topic: str) -> list[Place]:
        found = self._metadata.image.topic(topic)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        return led(self._metadata.image, [Place(topic, index) for index in range(len(found.partitions))])

    async def _settle(self, caller: Caller, request: SettleMessages) -> SettledAll:
        if any(each.outcome not in _OUTCOMES for each in request.ranges):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an outcome is a number from 0 to 4, or 1000")
        outcomes = await self._queues.settle(
            caller,
            request.group,
            request.member,
            Place(request.topic, request.partition),
            [
                Settlement(
                    each.first,
                    each.last,
                    SettlementKind(each.outcome),
                    each.delay_ms,
                    each.reason,
                    each.incarnation,
                )
                for each in request.ranges
            ],
        )
        return SettledAll(tuple((int(each.error), each.message) for each in outcomes))

    async def _release(self, caller: Caller, request: ReleaseMember) -> Released:
        await self._queues.release_all(caller, request.group, request.member)
        return Released()

    # -- queues on this node

    async def _look(self, _caller: Caller, request: LookAtQueues) -> QueueRows:
        return await look(self._shares, request)

    async def _peek(self, _caller: Caller, request: PeekAtQueue) -> Peeked:
        return await peek(self._shares, request)

    async def _purge(self, _caller: Caller, request: PurgeQueue) -> Purged:
        return await purge(self._shares, request)


def _taken(found: list[Acquired]) -> Taken:
    return Taken(
        tuple(
            TakenFrom(
                each.read.place.partition,
                tuple(
                    QueueRange(one.first_offset, one.last_offset, one.delivery_count) for one in each.ranges
                ),
                bytes(each.read.batches),
                each.locked_until_ms,
                each.lock_ms,
                each.incarnation,
            )
            for each in found
        )
    )
