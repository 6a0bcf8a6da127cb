"""Producers and readers behind their own gateway, which is not a node: its doors work under all faults that nodes have.

Every acknowledged message is in the log once, in each producer's order, and readers see the log as it is.
"""

import asyncio
from contextlib import aclosing
from random import Random

from millstream.broker.routing.gateway_doors import GatewayDoors
from millstream.doors import Caller, Doors, Message, NewTopic, Place
from millstream.doors.access import AllowAll, NoQuotas
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.testing.history import Anomaly, History, Outcome, Send, judge
from millstream.testing.simulator.clients import ClientGroup
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.consumer import SimulatedConsumer
from millstream.testing.simulator.machine import SimulatedClock

TOPIC = "doors"
_SENDERS = 4
_TIMEOUT_SECONDS = 6.0
_PAUSE_SECONDS = 0.3
_CALLER = Caller(client_id="simulated door")


class DoorClients(ClientGroup):
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.history = History()
        self.acknowledged = 0
        super().__init__(cluster, random)
        self._partitions = len(cluster.nodes)
        """As many partitions as brokers, so that the gateway talks to all of them."""
        self._gateway_client = self._client("gateway")
        self._is_over = False
        self._followed: list[list[str]] = [[] for _ in range(self._partitions)]
        self._followers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._task = self._as(self._gateway_client, self._run())

    async def finish(self) -> None:
        """Let pending work finish, read everything, and check that the readers have seen it."""
        self._is_over = True
        assert self._task is not None
        await self._task
        for index in range(self._partitions):
            client = self._client(f"doors-final-{index}")
            consumer = SimulatedConsumer(client, TOPIC, index, self.history, is_final=True)
            await self._as(client, consumer.read_to_end())
            self.history.final_keys.add(f"{TOPIC}-{index}")
            while len(self._followed[index]) < consumer.position:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)
        for follower in self._followers:
            follower.cancel()

    def judge(self) -> list[Anomaly | str]:
        problems: list[Anomaly | str] = list(judge(self.history))
        for index, followed in enumerate(self._followed):
            key = f"{TOPIC}-{index}"
            final = [seen.value for poll in self.history.polls for seen in poll.records if seen.key == key]
            if followed != final:
                problems.append(f"a follower of {TOPIC}-{index} saw {followed}, and the log has {final}")
        return problems

    async def _run(self) -> None:
        addresses = [f"{host}:{port}" for host, port in self._cluster.addresses]
        gateway = GatewayDoors(addresses, AllowAll(), NoQuotas(), SimulatedClock(self._cluster.loop))
        gateway.start()
        doors = gateway.doors
        await self._create_topic(doors)
        self._followers = [
            self._cluster.loop.create_task(self._follow(doors, index)) for index in range(self._partitions)
        ]
        await asyncio.gather(*(self._send(doors, number) for number in range(_SENDERS)))

    async def _create_topic(self, doors: Doors) -> None:
        while TOPIC not in doors.metadata.image.topics:
            try:
                await doors.metadata.create_topics(_CALLER, [NewTopic(TOPIC, self._partitions, 3)])
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _follow(self, doors: Doors, index: int) -> None:
        place, offset = Place(TOPIC, index), 0
        while True:
            try:
                async with aclosing(doors.partitions.follow(_CALLER, place, offset)) as reading:  # type: ignore[type-var]
                    async for read in reading:
                        self._followed[index] += [(record.value or b"").decode() for record in read.records()]
                        offset = read.next_offset
            except KafkaError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE:
                    raise
                # A record has rotted at its leader and will be repaired.
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _send(self, doors: Doors, number: int) -> None:
        """A sender. After an uncertain outcome it takes a new identity, as the message may still arrive."""
        random = Random(self._random.getrandbits(64))
        loop = self._cluster.loop
        life = count = 0
        while not self._is_over:
            index = random.randrange(self._partitions)
            value = f"{number}-{life}-{count}"
            count += 1
            start, offset = loop.time(), None
            try:
                appended = await doors.messages.send(
                    _CALLER, Place(TOPIC, index), [Message(None, value.encode())], timeout_s=_TIMEOUT_SECONDS
                )
                outcome, offset = Outcome.OK, appended.base_offset
                self.acknowledged += 1
            except NotDone:
                outcome = Outcome.FAILED
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                outcome = Outcome.UNKNOWN
            self.history.sends.append(
                Send(f"door-{number}-{life}", f"{TOPIC}-{index}", value, start, loop.time(), outcome, offset)
            )
            if outcome is Outcome.UNKNOWN:
                life += 1
            await asyncio.sleep(random.expovariate(1 / _PAUSE_SECONDS))
