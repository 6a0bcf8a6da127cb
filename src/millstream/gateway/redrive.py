"""Sends dead letters back to their source topics."""

from collections import deque
from collections.abc import Sequence

from millstream.doors import (
    Caller,
    Delivery,
    Message,
    Messages,
    Place,
    Queues,
    Settlement,
    SettlementKind,
    TopicImage,
)
from millstream.gateway.places import Turns
from millstream.gateway.topics import Topics
from millstream.protocol.queue_call import DEAD_LETTER_PREFIX, SOURCE_GONE_MS, STAYS, source_of

_AT_ONCE = 100
_MAX_BYTES = 1 << 20


class Redrive:
    """Sends each letter, then accepts it: a failure in between may duplicate a message but loses none."""

    def __init__(self, queues: Queues, messages: Messages, topics: Topics, member: str, turns: Turns) -> None:
        self._queues = queues
        self._messages = messages
        self._topics = topics
        self._member = member
        self._turns = turns

    async def run(self, caller: Caller, letters: TopicImage, group: str, most: int) -> tuple[int, int]:
        """Returns how many went back, and how many stay: those without their source topic or their record."""
        redriven = stayed = 0
        for partition in letters.partitions:
            place = Place(letters.name, partition.index)
            while redriven + stayed < most:
                acquired = await self._queues.acquire(
                    caller, group, self._member, place, max_wait_s=0.0, max_bytes=_MAX_BYTES,
                    max_messages=min(_AT_ONCE, most - redriven - stayed),
                )  # fmt: skip
                read = acquired.read
                some = [*acquired.deliveries(read.records(await read.open()))]
                if not some:
                    break
                sent = await self._send_back(caller, group, place, some)
                redriven += sent
                stayed += len(some) - sent
        return redriven, stayed

    async def _send_back(self, caller: Caller, group: str, place: Place, some: Sequence[Delivery]) -> int:
        left, outcomes = deque(some), list[Settlement]()
        try:
            while left:
                outcomes.append(await self._settle_one(caller, left[0]))
                left.popleft()
        finally:
            outcomes += [_outcome(each, SettlementKind.UNDELIVERED) for each in left]
            await self._queues.settle(caller, group, self._member, place, outcomes)
        return sum(each.kind is SettlementKind.ACCEPT for each in outcomes)

    async def _settle_one(self, caller: Caller, letter: Delivery) -> Settlement:
        record = letter.record
        name = source_of(record.headers)
        if name is None:
            return _outcome(letter, SettlementKind.REJECT, STAYS)
        source = self._topics.known(name)
        if source is None:
            return _outcome(letter, SettlementKind.RELEASE, delay_ms=SOURCE_GONE_MS)
        headers = tuple(each for each in record.headers if not each[0].startswith(DEAD_LETTER_PREFIX))
        to = self._turns.choose(source.name, len(source.partitions), None, record.key)
        await self._messages.send(
            caller, Place(source.name, to), [Message(record.key, record.value, headers)]
        )
        return _outcome(letter, SettlementKind.ACCEPT)


def _outcome(letter: Delivery, kind: SettlementKind, reason: str = "", delay_ms: int = 0) -> Settlement:
    offset = letter.record.offset
    return Settlement(offset, offset, kind, delay_ms, reason, letter.incarnation)
