"""Clients of a queue: producers, consumers that accept, give back, reject or forget messages, and its dead letters.

What they saw is judged by the rules of queues: every message that was put is delivered or a dead letter, none is
delivered once its acknowledgement was confirmed, and none is both done and dead. Where no fault takes a leader's office
away, nobody else gets a message before its lock ends: a new leader knows of no locks.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any, TypeVar

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
from millstream.testing.history import Anomaly, History, Outcome
from millstream.testing.history.queues import Delivery, QueueEvent, QueueStep, judge_locks, judge_queue
from millstream.testing.simulator.admin import SimulatedAdmin
from millstream.testing.simulator.client import NoAnswer, SimulatedClient
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.producer import SimulatedProducer

TOPIC, LETTERS, GROUP = "jobs", "letters", "workers"
_PARTITIONS = 2
_CONSUMERS = 3
_LOCK_SECONDS = 15
_GROUP_CONFIGS = {
    "share.record.lock.duration.ms": str(_LOCK_SECONDS * 1000),
    "share.delivery.count.limit": "3",
    "errors.deadletterqueue.topic.name": LETTERS,
}
_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
_SECONDS = 8.0
# Longer than a lock: whoever hears of nothing for so long has seen everything.
_SILENCE_SECONDS = 25.0
_GROUP_RESOURCE = 32
_REFUSED = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)

Answer = TypeVar("Answer", bound=msgspec.Struct)
Message = tuple[int, int, str]
"""Partition, offset and value."""


class QueueWorker:
    def __init__(self, client: SimulatedClient, events: list[QueueEvent]) -> None:
        self.client = client
        self.accepted = 0
        self.deliveries: list[Delivery] = []
        self._held: dict[Message, Delivery] = {}
        self._events = events

    async def work(self, is_over: Callable[[], bool]) -> None:
        random = self.client.random
        while not is_over():
            for message in await self.take():
                chance = random.random()
                if chance < 0.7:
                    await self.settle(message, _ACCEPT)
                elif chance < 0.8:
                    await self.settle(message, _RELEASE)
                elif chance < 0.9:
                    await self.settle(message, _REJECT)
            await asyncio.sleep(random.expovariate(5.0))

    async def drain(self) -> None:
        """Accept all that is left."""
        heard = self.client.loop.time()
        while self.client.loop.time() - heard < _SILENCE_SECONDS:
            for message in await self.take():
                heard = self.client.loop.time()
                await self.settle(message, _ACCEPT)

    async def take(self) -> list[Message]:
        start = self.client.loop.time()
        request = TakeMessages(GROUP, self.client.name, TOPIC, 3, max_wait_ms=1_000)
        taken = await self._ask(request, Taken)
        messages = [] if taken is None else list(_messages(taken))
        self._events += [QueueEvent(TOPIC, value, QueueStep.DELIVERED, start) for _, _, value in messages]
        for message in messages:
            self._held[message] = Delivery(TOPIC, message[2], start, self.client.loop.time())
            self.deliveries.append(self._held[message])
        return messages

    async def settle(self, message: Message, outcome: int) -> None:
        partition, offset, value = message
        self._held[message].let_go = self.client.loop.time()
        ranges = (SettledRange(offset, offset, outcome),)
        settled = await self._ask(
            SettleMessages(GROUP, self.client.name, TOPIC, partition, ranges), SettledAll
        )
        code, said = (None, "") if settled is None else settled.outcomes[0]
        if outcome != _ACCEPT or code in _REFUSED:
            return
        # Any other error may come after it was stored; and what was settled before may have been rejected by another.
        is_done = code == ErrorCode.NONE and said != SETTLED_BEFORE
        self.accepted += is_done
        step = QueueStep.ACKED if is_done else QueueStep.TRIED
        self._events.append(QueueEvent(TOPIC, value, step, self.client.loop.time()))

    async def _ask(self, request: QueueRequest, kind: type[Answer]) -> Answer | None:
        """None when it is not known, or not possible now."""
        try:
            reply = await self.client.ask(
                self.client.any_node(), QUEUE_CALL, 0, encode_request(request), _SECONDS
            )
            return decode_reply(bytes(reply), kind)
        except (NoAnswer, KafkaError):
            await asyncio.sleep(0.3 * (0.5 + self.client.random.random()))
            return None


class QueueClients:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.events: list[QueueEvent] = []
        self._history = History()
        self._cluster = cluster
        self._random = random
        self._is_over = False
        self._admin = SimulatedAdmin(self._client("queue-admin"), [], 3)
        self._producers = [
            SimulatedProducer(self._client(f"jobs-{index}"), TOPIC, index, self._history)
            for index in range(_PARTITIONS)
        ]
        self.workers = [
            QueueWorker(self._client(f"worker-{number}"), self.events) for number in range(_CONSUMERS)
        ]
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._cluster.loop.create_task(self._run())

    async def finish(self) -> None:
        """Let what is under way come to its end, take all that is left, and read the dead letters."""
        self._is_over = True
        assert self._task is not None
        await self._task
        await asyncio.gather(*(self._as(each.client, each.drain()) for each in self.workers))
        letters = History()
        client = self._client("letters-final")
        consumer = SimulatedConsumer(client, LETTERS, 0, letters, is_final=True)
        await self._as(client, _read_to_end(consumer))
        now = self._cluster.loop.time()
        self.events += [
            QueueEvent(TOPIC, each.value, QueueStep.DEAD, now)
            for poll in letters.polls
            for each in poll.records
        ]
        self.events += [
            QueueEvent(TOPIC, send.value, QueueStep.PUT, send.start)
            for send in self._history.sends
            if send.outcome is Outcome.OK
        ]

    def judge(self, *, leaders_stay: bool) -> list[Anomaly]:
        found = list(judge_queue(self.events, is_drained=True))
        if leaders_stay:
            found += judge_locks(
                (each for worker in self.workers for each in worker.deliveries), _LOCK_SECONDS
            )
        return found

    def _client(self, name: str) -> SimulatedClient:
        random = Random(self._random.getrandbits(64))
        return SimulatedClient(name, self._cluster.loop, random, self._cluster.addresses)

    def _as(self, client: SimulatedClient, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._cluster.loop.create_task(work, name=client.name, context=client.process.context)

    async def _run(self) -> None:
        admin = self._admin
        await self._as(admin.client, admin.create_surely(TOPIC, _PARTITIONS, {}))
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        await self._as(admin.client, admin.create_surely(LETTERS, 1, enabled))
        await self._as(admin.client, self._configure())
        await asyncio.gather(
            *(self._as(each.client, self._produce(each)) for each in self._producers),
            *(self._as(each.client, each.work(lambda: self._is_over)) for each in self.workers),
        )

    async def _configure(self) -> None:
        client = self._admin.client
        changes = [
            {"name": name, "config_operation": 0, "value": value} for name, value in _GROUP_CONFIGS.items()
        ]
        resource = {"resource_type": _GROUP_RESOURCE, "resource_name": GROUP, "configs": changes}
        while True:
            try:
                reply = await client.call(
                    client.any_node(),
                    "incremental_alter_configs",
                    1,
                    _SECONDS,
                    resources=[resource],
                    validate_only=False,
                )
                if not reply.responses[0].error_code:
                    return
            except NoAnswer:
                pass
            await asyncio.sleep(0.3)

    async def _produce(self, producer: SimulatedProducer) -> None:
        random = producer.client.random
        while not self._is_over:
            await producer.send(random.randint(1, 3))
            await asyncio.sleep(random.expovariate(2.0))


def _messages(taken: Taken) -> Iterator[Message]:
    for place in taken.places:
        mine = {offset for each in place.ranges for offset in range(each.first, each.last + 1)}
        view, at = memoryview(place.batches), 0
        while at < len(view):
            size = read_header(view, at).size_bytes
            for record in decode_records(view[at : at + size], 1 << 20):
                if record.offset in mine:
                    yield place.partition, record.offset, (record.value or b"").decode()
            at += size


async def _read_to_end(consumer: SimulatedConsumer) -> None:
    while consumer.high_watermark < 0 or consumer.position < consumer.high_watermark:
        await consumer.poll(wait_ms=0)
