"""The clients of a run: producers of one topic, its readers, alone or in a group, and those who change things.

Somebody creates and deletes other topics; in some runs somebody moves replicas or changes settings too.
"""

import asyncio
from collections.abc import Collection, Coroutine
from random import Random
from typing import Any

from millstream.testing.history import History
from millstream.testing.history.groups import GroupHistory
from millstream.testing.history.topics import TopicCall
from millstream.testing.simulator.admin import SimulatedAdmin
from millstream.testing.simulator.client import NoAnswer, SimulatedClient
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.member import SimulatedMember, fetch_positions, find_coordinator
from millstream.testing.simulator.operator import SimulatedOperator
from millstream.testing.simulator.producer import SimulatedProducer

TOPIC = "ledger"
GROUP = "readers"

# What is done to the topic meanwhile, in one run or the other.
_OPERATIONS = ((), (), ("moves",), ("settings",), ("moves", "settings"))


class Workload:
    """`history`, `group` and `topic_calls` are what the clients saw; `group` is None where each reads for itself."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        *,
        partitions: int,
        replicas: int,
        allowed: Collection[str],
    ) -> None:
        """`allowed` are the operator's kinds of work: without any, all replicas stay, and as many as there must be are
        in sync.
        """
        self.history = History()
        self.topic_calls: list[TopicCall] = []
        self.partitions = partitions
        self._cluster = cluster
        self._random = random
        self._clients = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self.configs = random.choice(({}, {"segment.bytes": "2000"}))
        """Of the topic that is written to."""
        self._pause = random.choice((0.5, 1.0, 2.0))
        self.admin = SimulatedAdmin(self._client("admin"), self.topic_calls, replicas)
        self._other_topics = SimulatedAdmin(self._client("meddler"), self.topic_calls, replicas)
        self.producers = [
            SimulatedProducer(self._client(f"producer-{index}-{number}"), TOPIC, index, self.history)
            for index in range(partitions)
            for number in range(random.choice((1, 2)))
        ]
        does = [kind for kind in random.choice(_OPERATIONS) if kind in allowed]
        nodes = list(cluster.nodes)
        self.operator = SimulatedOperator(
            self._client("operator"), TOPIC, partitions, nodes, does, self.configs
        )
        self.group = GroupHistory(GROUP) if random.random() < 0.5 else None
        self._consumers = [
            SimulatedConsumer(self._client(f"consumer-{index}"), TOPIC, index, self.history)
            for index in range(partitions if self.group is None else 0)
        ]
        self._members = [
            SimulatedMember(self._client(f"member-{number}"), TOPIC, partitions, self.group, self.history)
            for number in range(random.choice((1, 2, 3)))
            if self.group is not None
        ]

    def _client(self, name: str) -> SimulatedClient:
        random = Random(self._random.getrandbits(64))
        return SimulatedClient(name, self._cluster.loop, random, self._cluster.addresses)

    def start(self) -> None:
        for producer in self.producers:
            self._run(producer.client, self._produce(producer))
        for consumer in self._consumers:
            self._run(consumer.client, self._consume(consumer))
        for member in self._members:
            self._run(member.client, member.live(self._is_done))
        self._run(self._other_topics.client, self._meddle())
        self._run(self.operator.client, self.operator.work())

    def stop_operating(self) -> None:
        """From now on the cluster is left as it is, so that it can come to rest."""
        self.operator.is_over = True

    def progress(self) -> list[int]:
        """What was acknowledged so far, by everybody who must get acknowledgements when all is well."""
        told = [producer.acknowledged for producer in self.producers]
        return told if self.group is None else [*told, self.group.acknowledged]

    def _is_done(self) -> bool:
        return self._is_over

    def _run(self, client: SimulatedClient, work: Coroutine[Any, Any, None]) -> None:
        context = client.process.context
        self._tasks.append(self._cluster.loop.create_task(work, name=client.name, context=context))

    async def stop(self) -> None:
        """Let what is under way come to its end; an error of a client is one of the run."""
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def as_client(self, client: SimulatedClient, work: Coroutine[Any, Any, None]) -> None:
        await self._cluster.loop.create_task(work, name=client.name, context=client.process.context)

    async def read_everything(self) -> None:
        """The last phase: from the beginning to the end of every partition."""
        for index in range(self.partitions):
            consumer = SimulatedConsumer(
                self._client(f"final-{index}"), TOPIC, index, self.history, is_final=True
            )
            await self.as_client(consumer.client, _read_to_end(consumer))
            self.history.final_keys.add(f"{TOPIC}-{index}")
        if self.group is not None:
            client = self._client("final-positions")
            await self.as_client(client, self._read_positions(client, self.group))

    async def _read_positions(self, client: SimulatedClient, group: GroupHistory) -> None:
        while True:
            try:
                coordinator = await find_coordinator(client, group.group_id)
                await fetch_positions(client, coordinator, group, TOPIC, range(self.partitions))
            except NoAnswer:
                await asyncio.sleep(0.2)
            else:
                return

    async def _produce(self, producer: SimulatedProducer) -> None:
        random = producer.client.random
        while not self._is_over:
            await producer.send(random.choice((1, 1, 3)))
            await asyncio.sleep(random.expovariate(1 / self._pause))

    async def _consume(self, consumer: SimulatedConsumer) -> None:
        while not self._is_over:
            await consumer.poll()

    async def _meddle(self) -> None:
        random = self._other_topics.client.random
        while not self._is_over:
            topic = f"other-{random.randrange(3)}"
            if random.random() < 0.6:
                await self._other_topics.create(topic, random.choice((1, 3)))
            else:
                await self._other_topics.delete(topic)
            await asyncio.sleep(random.expovariate(1 / 2.0))


async def _read_to_end(consumer: SimulatedConsumer) -> None:
    while consumer.high_watermark < 0 or consumer.position < consumer.high_watermark:
        await consumer.poll(wait_ms=0)
