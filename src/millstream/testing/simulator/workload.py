"""The clients of a run: producers of one topic, its readers, alone or in a group, and clients that change things.

Other topics are created and deleted; in some runs replicas are moved or settings changed, and side topics come and go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from random import Random
from typing import Any

from millstream.protocol.errors import ErrorCode
from millstream.protocol.internal_topics import OFFSETS_TOPIC
from millstream.testing.history import Anomaly, History, Outcome
from millstream.testing.history.groups import GroupHistory
from millstream.testing.history.topics import TopicCall
from millstream.testing.simulator.admin import SimulatedAdmin
from millstream.testing.simulator.client import NoAnswer, SimulatedClient
from millstream.testing.simulator.clients import ClientGroup
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.consumer_member import ConsumerMember
from millstream.testing.simulator.member import SimulatedMember, fetch_positions, find_coordinator
from millstream.testing.simulator.mover import Mover
from millstream.testing.simulator.operator import SimulatedOperator, set_configs
from millstream.testing.simulator.plan import GroupStyle, Plan
from millstream.testing.simulator.producer import SimulatedProducer
from millstream.testing.simulator.quorum_watch import QuorumWatch
from millstream.testing.simulator.side_topics import SideTopic

TOPIC = "ledger"
GROUP = "readers"

_SHOWN_SECONDS = 60.0
# The changes made to the topic, one kind or another a run.
_OPERATIONS = ((), (), ("moves",), ("settings",), ("moves", "settings"))
_EAGER = {"segment.bytes": "400", "min.cleanable.dirty.ratio": "0.01"}


class Workload(ClientGroup):
    """`history`, `group` and `topic_calls` record what the clients saw; `group` is None if each reads alone."""

    def __init__(self, cluster: SimulatedCluster, random: Random, *, partitions: int, replicas: int) -> None:
        self.history = History()
        self.topic_calls: list[TopicCall] = []
        self.partitions = partitions
        self.group: GroupHistory | None = None
        self.producers: list[SimulatedProducer] = []
        self.sides: list[SideTopic] = []
        self.configs: dict[str, str] = {}
        """Of the topic that is written to."""
        self.operator: SimulatedOperator
        super().__init__(cluster, random)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self._is_started = False
        self._pause = 1.0
        self._has_eager_offsets = False
        self._consumers: list[SimulatedConsumer] = []
        self._members: list[SimulatedMember] = []
        self._member: type[SimulatedMember] = SimulatedMember
        self._replicas = replicas

    @classmethod
    def plain(cls, cluster: SimulatedCluster, random: Random, *, allowed: Collection[str]) -> "Workload":
        """`allowed` are the operator's kinds of work: without any, replicas stay, and enough are in sync."""
        workload = cls(cluster, random, partitions=2, replicas=3)
        workload._draw(allowed)
        return workload

    @classmethod
    def planned(
        cls,
        cluster: SimulatedCluster,
        plan: Plan,
        quorum: QuorumWatch,
        strike: Callable[[int], Awaitable[None]],
    ) -> "Workload":
        workload = cls(cluster, plan.random("clients"), partitions=plan.ledger.partitions, replicas=3)
        workload._follow(plan, quorum, strike)
        return workload

    def _draw(self, allowed: Collection[str]) -> None:
        """The order matters: the plain profile's seeds depend on it."""
        random = self._random
        self.configs = random.choice(({}, {"segment.bytes": "2000"}))
        self._pause = random.choice((0.5, 1.0, 2.0))
        self._add_admins()
        for index in range(self.partitions):
            for number in range(random.choice((1, 2))):
                self._add_producer(index, number)
        does = [kind for kind in random.choice(_OPERATIONS) if kind in allowed]
        self.operator = self._make_operator(does, None)
        self.group = GroupHistory(GROUP) if random.random() < 0.5 else None
        for index in range(self.partitions if self.group is None else 0):
            self._add_consumer(index)
        for number in range(random.choice((1, 2, 3))):
            self._add_member(number)

    def _follow(self, plan: Plan, quorum: QuorumWatch, strike: Callable[[int], Awaitable[None]]) -> None:
        ledger = plan.ledger
        nodes = list(self._cluster.nodes)

        def mover(client: SimulatedClient) -> Mover:
            return Mover(client, nodes, quorum, strike)

        self.configs, self._pause = dict(ledger.configs), ledger.pause_seconds
        self._has_eager_offsets = ledger.eager_offsets
        self._add_admins()
        for index in range(self.partitions):
            self._add_producer(index, 0)
        self.operator = self._make_operator(ledger.works, mover)
        self._member = ConsumerMember if ledger.group is GroupStyle.CONSUMER else SimulatedMember
        if ledger.group is not GroupStyle.NONE:
            self.group = GroupHistory(GROUP, is_incremental=ledger.group is GroupStyle.CONSUMER)
        for index in range(self.partitions if self.group is None else 0):
            self._add_consumer(index)
        for number in range(ledger.members):
            self._add_member(number)
        self.sides = [SideTopic(each, self._client, self._run, mover) for each in plan.sides]

    def _add_admins(self) -> None:
        self.admin = SimulatedAdmin(self._client("admin"), self.topic_calls, self._replicas)
        self._other_topics = SimulatedAdmin(self._client("meddler"), self.topic_calls, self._replicas)

    def _make_operator(
        self, does: Collection[str], mover: Callable[[SimulatedClient], Mover] | None
    ) -> SimulatedOperator:
        client = self._client("operator")
        return SimulatedOperator(
            client, TOPIC, self.partitions, list(self._cluster.nodes), list(does), self.configs,
            None if mover is None else mover(client), self._grown,
        )  # fmt: skip

    def _add_producer(self, index: int, number: int) -> None:
        producer = SimulatedProducer(self._client(f"producer-{index}-{number}"), TOPIC, index, self.history)
        self.producers.append(producer)
        if self._is_started:
            self._run(producer.client, self._produce(producer))

    def _add_consumer(self, index: int) -> None:
        consumer = SimulatedConsumer(self._client(f"consumer-{index}"), TOPIC, index, self.history)
        self._consumers.append(consumer)
        if self._is_started:
            self._run(consumer.client, self._consume(consumer))

    def _add_member(self, number: int) -> None:
        if self.group is not None:
            client = self._client(f"member-{number}")
            self._members.append(
                self._member(client, TOPIC, lambda: self.partitions, self.group, self.history)
            )

    def _grown(self, partitions: int) -> None:
        """The topic has this many partitions now; use all of them."""
        for index in range(self.partitions, partitions):
            self._add_producer(index, 0)
            if self.group is None:
                self._add_consumer(index)
        self.partitions = partitions

    def start(self) -> None:
        self._is_started = True
        for producer in self.producers:
            self._run(producer.client, self._produce(producer))
        for consumer in self._consumers:
            self._run(consumer.client, self._consume(consumer))
        for member in self._members:
            self._run(member.client, member.live(lambda: self._is_over))
        self._run(self._other_topics.client, self._meddle())
        self._run(self.operator.client, self.operator.work())
        for side in self.sides:
            self._run(side.client, side.work())
        if self._has_eager_offsets and self.group is not None:
            client = self._client("tuner")
            self._run(client, self._tune(client))

    def stop_operating(self) -> None:
        """From now on the cluster is left unchanged, so that it can come to rest."""
        self.operator.is_over = True
        for side in self.sides:
            side.leave_alone()

    def progress(self) -> list[Callable[[], int]]:
        """Counters of acknowledgements, one for each client that must make progress in a healthy cluster."""
        producers = [
            *self.producers,
            *(each for side in self.sides for life in side.certain for each in life.producers),
        ]
        told = [_acknowledged_of(each) for each in producers]
        group = self.group
        return told if group is None else [*told, lambda: group.acknowledged]

    def _run(self, client: SimulatedClient, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._as(client, work))

    async def stop(self) -> None:
        """Let pending work finish; an error of a client is one of the run."""
        self._is_over = True
        for side in self.sides:
            side.stop()
        await asyncio.gather(*self._tasks)

    async def as_client(self, client: SimulatedClient, work: Coroutine[Any, Any, None]) -> None:
        await self._as(client, work)

    async def read_everything(self) -> None:
        """The last phase: read every partition from its beginning to its end."""
        for index in range(self.partitions):
            consumer = SimulatedConsumer(
                self._client(f"final-{index}"), TOPIC, index, self.history, is_final=True
            )
            await self.as_client(consumer.client, consumer.read_to_end())
            # A disk that got stuck late leaves a new leader with too few replicas in sync: its high watermark lags for
            # a while.
            await self.as_client(consumer.client, self._wait_for_acknowledged(consumer))
            self.history.final_keys.add(f"{TOPIC}-{index}")
        for side in self.sides:
            for reader in side.readers():
                await self.as_client(reader.client, reader.read_to_end())
                side.was_read(reader)
        if self.group is not None:
            client = self._client("final-positions")
            await self.as_client(client, self._read_positions(client, self.group))

    async def _wait_for_acknowledged(self, consumer: SimulatedConsumer) -> None:
        """Records that do not appear in this time are lost."""
        offsets = [
            send.offset
            for send in self.history.sends
            if send.key == consumer.key and send.outcome is Outcome.OK and send.offset is not None
        ]
        give_up = self._cluster.loop.time() + _SHOWN_SECONDS
        while consumer.position <= max(offsets, default=-1) and self._cluster.loop.time() < give_up:
            await consumer.poll()

    def judge_sides(self) -> list[Anomaly]:
        return [anomaly for side in self.sides for anomaly in side.judge()]

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

    async def _tune(self, client: SimulatedClient) -> None:
        """Group offsets go to tiny segments that are compacted at once, as soon as the topic exists."""
        while not self._is_over:
            try:
                if await set_configs(client, OFFSETS_TOPIC, _EAGER) == ErrorCode.NONE:
                    return
            except NoAnswer:
                pass
            await asyncio.sleep(1.0)


def _acknowledged_of(producer: SimulatedProducer) -> Callable[[], int]:
    return lambda: producer.acknowledged
