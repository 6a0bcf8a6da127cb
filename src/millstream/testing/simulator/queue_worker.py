"""Consumers of a queue: their common work and records, and the consumer that uses the doors' own call."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from millstream.doors.queues import SETTLED_BEFORE
from millstream.protocol.api import QUEUE_CALL
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import (
    QueueRequest,
    SettledAll,
    SettledRange,
    SettleMessages,
    TakeMessages,
    Taken,
    decode_reply,
    encode_request,
)
from millstream.protocol.record_batch import read_header
from millstream.protocol.records import decode_records
from millstream.testing.history.queues import Delivery, QueueEvent, QueueStep
from millstream.testing.simulator.client import NoAnswer, SimulatedClient

TOPIC, GROUP = "jobs", "workers"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
REQUEST_SECONDS: Final = 8.0
MOST_MESSAGES: Final = 3
WAIT_MS: Final = 1_000
LOCK_SECONDS: Final = 15
_REFUSED = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)

Answer = TypeVar("Answer", bound=msgspec.Struct)
Message = tuple[int, int, str]
"""Partition, offset and value."""


class QueueWorker:
    def __init__(self, client: SimulatedClient, events: list[QueueEvent]) -> None:
        self.client = client
        self.accepted = 0
        self.deliveries: list[Delivery] = []
        self.last_news_at = 0.0
        """When the last news arrived."""
        self.surely: list[QueueEvent] = []
        """Messages accepted under their lock, unless it ended with its leader."""
        self._held: dict[Message, Delivery] = {}
        self._events = events
        self._drains = False

    async def work(self, is_over: Callable[[], bool]) -> None:
        random = self.client.random
        while not is_over():
            for message in await self.take():
                chance = random.random()
                if chance < 0.7:
                    await self.settle(message, ACCEPT)
                elif chance < 0.8:
                    await self.settle(message, RELEASE)
                elif chance < 0.9:
                    await self.settle(message, REJECT)
                else:
                    await self.forget(message)
            await asyncio.sleep(random.expovariate(5.0))

    async def drain(self, is_over: Callable[[], bool]) -> None:
        """Accept all messages that are left."""
        self._drains, self.last_news_at = True, self.client.loop.time()
        while not is_over():
            for message in await self.take():
                await self.settle(message, ACCEPT)
        await self.end()

    async def take(self) -> list[Message]:
        raise NotImplementedError

    async def settle(self, message: Message, outcome: int) -> None:
        raise NotImplementedError

    async def forget(self, message: Message) -> None:
        """Let the lock end."""

    async def end(self) -> None:
        """The worker needs no more messages."""

    def _took(self, messages: Sequence[Message], asked: float) -> None:
        now = self.client.loop.time()
        self._events += [QueueEvent(TOPIC, value, QueueStep.DELIVERED, asked) for _, _, value in messages]
        for message in messages:
            self._held[message] = Delivery(TOPIC, message[2], asked, now)
            self.deliveries.append(self._held[message])
        if messages:
            self.last_news_at = now

    def _lets_go(self, message: Message) -> None:
        self._held[message].let_go = self.client.loop.time()

    def _accepted(self, message: Message, step: QueueStep) -> None:
        """Records the outcome of an attempt to accept the message."""
        self.accepted += step is not QueueStep.TRIED
        self._events.append(QueueEvent(TOPIC, message[2], step, self.client.loop.time()))

    async def _pause(self) -> None:
        await asyncio.sleep(0.3 * (0.5 + self.client.random.random()))


class CallWorker(QueueWorker):
    """Asks any node, by the call that HTTP, MQTT and the Python client use."""

    async def take(self) -> list[Message]:
        start = self.client.loop.time()
        request = TakeMessages(GROUP, self.client.name, TOPIC, MOST_MESSAGES, max_wait_ms=WAIT_MS)
        taken = await self._ask(request, Taken)
        messages = [] if taken is None else list(_messages(taken))
        self._took(messages, start)
        return messages

    async def settle(self, message: Message, outcome: int) -> None:
        partition, offset, _ = message
        self._lets_go(message)
        ranges = (SettledRange(offset, offset, outcome),)
        settled = await self._ask(
            SettleMessages(GROUP, self.client.name, TOPIC, partition, ranges), SettledAll
        )
        code, said = (None, "") if settled is None else settled.outcomes[0]
        if outcome == ACCEPT and not is_refused(code):
            # Any other error may come after the change was stored; a message settled earlier may have been rejected by
            # another.
            is_done = code == ErrorCode.NONE and said != SETTLED_BEFORE
            self._accepted(message, QueueStep.ACKED if is_done else QueueStep.TRIED)

    async def _ask(self, request: QueueRequest, kind: type[Answer]) -> Answer | None:
        """None if the answer is unknown, or not possible now."""
        try:
            reply = await self.client.ask(
                self.client.any_node(), QUEUE_CALL, 0, encode_request(request), REQUEST_SECONDS
            )
            return decode_reply(bytes(reply), kind)
        except (NoAnswer, KafkaError):
            await self._pause()
            return None


def is_refused(code: int | None) -> bool:
    """Whether certainly nothing was changed; None without an answer."""
    return code in _REFUSED


def _messages(taken: Taken) -> Iterator[Message]:
    for place in taken.places:
        ranges = [(each.first, each.last) for each in place.ranges]
        yield from messages_in(place.partition, memoryview(place.batches), ranges)


def messages_in(partition: int, batches: memoryview, ranges: Sequence[tuple[int, int]]) -> Iterator[Message]:
    """Only these offsets: batches also hold messages of other consumers."""
    mine = {offset for first, last in ranges for offset in range(first, last + 1)}
    at = 0
    while at < len(batches):
        size = read_header(batches, at).size_bytes
        for record in decode_records(batches[at : at + size], 1 << 20):
            if record.offset in mine:
                yield partition, record.offset, (record.value or b"").decode()
        at += size
