"""Clients of a queue: producers, consumers that accept, release, reject or forget messages, and readers of dead
letters.

Some consumers use the doors' own call (`queue_worker.py`), some are Kafka share consumers (`share_worker.py`). The
rules of queues judge what they saw: every message is delivered or becomes a dead letter, none is delivered after its
acknowledgement was confirmed, and none is both accepted and dead. While no fault deposes a leader, no other consumer
gets a message before its lock ends; a new leader knows no locks.
"""

import asyncio
from collections.abc import Mapping
from random import Random

from millstream.testing.history import Anomaly, History, Outcome
from millstream.testing.history.queues import QueueEvent, QueueStep, judge_locks, judge_queue
from millstream.testing.simulator.admin import SimulatedAdmin
from millstream.testing.simulator.client import NoAnswer
from millstream.testing.simulator.clients import ClientGroup
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.producer import SimulatedProducer
from millstream.testing.simulator.queue_worker import (
    GROUP,
    LOCK_SECONDS,
    REQUEST_SECONDS,
    TOPIC,
    CallWorker,
    QueueWorker,
)
from millstream.testing.simulator.share_worker import ShareWorker

LETTERS = "dlq.letters"
_PARTITIONS = 2
_CONSUMERS = 3
_SHARE_CONSUMERS = 0.5
"""The average share of consumers that use Kafka's protocol."""
_GROUP_CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.session.timeout.ms": "6000",
    "share.record.lock.duration.ms": str(LOCK_SECONDS * 1000),
    "share.delivery.count.limit": "3",
    "errors.deadletterqueue.topic.name": LETTERS,
}
# Longer than a lock: a consumer without news for so long has seen everything.
_SILENCE_SECONDS = 25.0
_BROKER_RESOURCE, _GROUP_RESOURCE = 4, 32
_ALL_BROKERS = ""
_LETTERS_MADE_BY_NODE = 0.5


class QueueClients(ClientGroup):
    def __init__(
        self, cluster: SimulatedCluster, random: Random, doors: Random, share_consumers: float | None = None
    ) -> None:
        """`doors` decides how consumers connect: `share_consumers` of them, or half, by Kafka's protocol."""
        self.events: list[QueueEvent] = []
        self._history = History()
        super().__init__(cluster, random)
        self._is_over = False
        self._admin = SimulatedAdmin(self._client("queue-admin"), [], 3)
        self._producers = [
            SimulatedProducer(self._client(f"jobs-{index}"), TOPIC, index, self._history)
            for index in range(_PARTITIONS)
        ]
        share = _SHARE_CONSUMERS if share_consumers is None else share_consumers
        self.workers: list[QueueWorker] = [
            (ShareWorker if doors.random() < share else CallWorker)(
                self._client(f"worker-{number}"), self.events
            )
            for number in range(_CONSUMERS)
        ]
        self._letters_made_by_node = doors.random() < _LETTERS_MADE_BY_NODE

    def start(self) -> None:
        self._task = self._cluster.loop.create_task(self._run())

    async def finish(self) -> None:
        """Let pending work finish, take all messages that are left, and read the dead letters."""
        self._is_over = True
        assert self._task is not None
        await self._task
        await asyncio.gather(*(self._as(each.client, each.drain(self._is_silent)) for each in self.workers))
        # A node makes the topic with the first letter: there may have been none.
        await self._as(self._admin.client, self._create_letters())
        letters = History()
        client = self._client("letters-final")
        consumer = SimulatedConsumer(client, LETTERS, 0, letters, is_final=True)
        await self._as(client, consumer.read_to_end())
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

    def _is_silent(self) -> bool:
        now = self._cluster.loop.time()
        return all(now - each.last_news_at >= _SILENCE_SECONDS for each in self.workers)

    def judge(self, *, leaders_stay: bool) -> list[Anomaly]:
        surely = [each for worker in self.workers for each in worker.surely] if leaders_stay else []
        found = list(judge_queue([*self.events, *surely], is_drained=True))
        if leaders_stay:
            found += judge_locks(
                (each for worker in self.workers for each in worker.deliveries), LOCK_SECONDS
            )
        return found

    async def _run(self) -> None:
        admin = self._admin
        await self._as(admin.client, admin.create_surely(TOPIC, _PARTITIONS, {}))
        if self._letters_made_by_node:
            creates = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
            await self._as(admin.client, self._configure(_BROKER_RESOURCE, _ALL_BROKERS, creates))
        else:
            await self._as(admin.client, self._create_letters())
        await self._as(admin.client, self._configure(_GROUP_RESOURCE, GROUP, _GROUP_CONFIGS))
        await asyncio.gather(
            *(self._as(each.client, self._produce(each)) for each in self._producers),
            *(self._as(each.client, each.work(lambda: self._is_over)) for each in self.workers),
        )

    async def _create_letters(self) -> None:
        await self._admin.create_surely(LETTERS, 1, {"errors.deadletterqueue.group.enable": "true"})

    async def _configure(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        client = self._admin.client
        changes = [{"name": key, "config_operation": 0, "value": value} for key, value in configs.items()]
        resource = {"resource_type": kind, "resource_name": name, "configs": changes}
        while True:
            try:
                reply = await client.call(
                    client.any_node(),
                    "incremental_alter_configs",
                    1,
                    REQUEST_SECONDS,
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
