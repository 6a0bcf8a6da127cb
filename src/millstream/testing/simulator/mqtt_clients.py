"""MQTT clients at two doors: publishers of QoS 1 and 2, a subscriber whose session moves, clients with a will.

Every acknowledged message is in the log and reaches the subscriber, QoS 2 once, in order by topic and QoS. The newest
message of a topic is retained, a will is published once, or never after DISCONNECT, and a session has one connection.
"""

import asyncio
from collections import Counter
from random import Random

from millstream.broker.routing.gateway_doors import GatewayDoors
from millstream.doors import Caller, Doors, NewTopic, PartitionAccess, Place
from millstream.doors.access import AllowAll, NoQuotas
from millstream.mqtt.door import MqttDoor
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.rules import DEFAULT_TOPIC, Rules
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.packets import (
    Disconnect,
    Filter,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    RetainHandling,
    Suback,
    Subscribe,
    Will,
)
from millstream.testing.simulator.client import SimulatedClient
from millstream.testing.simulator.clients import ClientGroup
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.machine import SimulatedClock
from millstream.testing.simulator.mqtt_device import Device, SimulatedDoor

_DOORS = 2
_PUBLISHERS = 3
_PARTITIONS = 3
_ANSWER_SECONDS = 8.0
_PAUSE_SECONDS = 0.5
_MOVE_SECONDS = 6.0
# After healing, acknowledged messages must be delivered within this time.
_ARRIVAL_SECONDS = 60.0
# Before the log is read: doors report ended connections, and wills are published.
_LEASE_SECONDS = 25.0
# Clocks of nodes jump by an hour, and sessions expire by the clock: no session may expire because of that.
_EXPIRY_SECONDS = 7 * 24 * 3600
_ERRORS_FROM = 0x80
_CALLER = Caller(client_id="simulated judge")


class _Publisher:
    """Sends one message at a time, again under the same identifier until it is acknowledged."""

    def __init__(self, number: int, device: Device) -> None:
        self.topic = f"t/{number}"
        self.retains = number % 2 == 0
        self.device = device
        self.acknowledged: list[tuple[str, int]] = []
        """Values in order, with their QoS."""
        self._number = 0
        self._answer: asyncio.Future[Packet] | None = None
        device.on_packet = self._heard

    async def run(self, clients: "MqttClients") -> None:
        random = self.device.random
        while not clients.is_over:
            self._number += 1
            value, qos = f"{self.topic}:{self._number}", random.choice((1, 2))
            if await self._publish(value.encode(), qos):
                self.acknowledged.append((value, qos))
            await asyncio.sleep(random.expovariate(1 / _PAUSE_SECONDS))

    async def _publish(self, payload: bytes, qos: int) -> bool:
        """Whether the message was accepted; a refused one is not in the log."""
        packet_id, repeats, received = self._number % 1_000 + 1, False, False
        while True:
            if not self.device.is_connected and not await self.device.connect():
                continue
            packet: Packet = Publish(self.topic, payload, qos, packet_id, self.retains, repeats)
            answer = await self._ask(Pubrel(packet_id) if received else packet)
            repeats = True
            if isinstance(answer, Puback | Pubrec) and answer.reason >= _ERRORS_FROM:
                return False
            if isinstance(answer, Puback | Pubcomp):
                return True
            received = received or isinstance(answer, Pubrec)

    async def _ask(self, packet: Packet) -> Packet | None:
        self._answer = self.device.loop.create_future()
        self.device.send(packet)
        if self.device.random.random() < 0.05:
            await asyncio.sleep(self.device.random.random() * 0.05)
            self.device.drop()
        try:
            return await asyncio.wait_for(self._answer, _ANSWER_SECONDS)
        except TimeoutError:
            self.device.drop()
            return None

    def _heard(self, packet: Packet) -> None:
        if isinstance(packet, Disconnect):
            self.device.drop()
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(packet)


class _Subscriber:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.got: list[tuple[str, int]] = []
        """Values in order of arrival, with their QoS."""
        self._unreleased: set[int] = set()
        self._suback: asyncio.Event = asyncio.Event()
        device.on_packet = self._heard

    async def subscribe(self) -> None:
        while not self._suback.is_set():
            await self.device.connect_surely()
            wanted = Filter("t/#", 2, retain_handling=RetainHandling.NEVER)
            self.device.send(Subscribe(1, (wanted,)))
            try:
                await asyncio.wait_for(self._suback.wait(), _ANSWER_SECONDS)
            except TimeoutError:
                self.device.drop()

    async def run(self, clients: "MqttClients") -> None:
        """It loses its connections, or opens a second one while the first is open."""
        random = self.device.random
        while not clients.is_done:
            if not self.device.is_connected:
                await self.device.connect_surely()
            await asyncio.sleep(random.expovariate(1 / _MOVE_SECONDS))
            if clients.is_over:
                continue
            if random.random() < 0.5:
                self.device.drop()
            await self.device.connect()

    def _heard(self, packet: Packet) -> None:
        match packet:
            case Publish(qos=1):
                self._take(packet)
                self.device.send(Puback(packet.packet_id))
            case Publish(qos=2):
                if packet.packet_id not in self._unreleased:
                    self._unreleased.add(packet.packet_id)
                    self._take(packet)
                self.device.send(Pubrec(packet.packet_id))
            case Pubrel():
                self._unreleased.discard(packet.packet_id)
                self.device.send(Pubcomp(packet.packet_id))
            case Suback():
                self._suback.set()
            case Disconnect():
                self.device.drop()

    def _take(self, packet: Publish) -> None:
        self.got.append((packet.payload.decode(), packet.qos))


class _Mortal:
    """Connects with a will again and again, and disconnects cleanly or silently."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.due: list[str] = []
        self.never: list[str] = []

    async def run(self, clients: "MqttClients") -> None:
        random, life = self.device.random, 0
        while not clients.is_over:
            life += 1
            value = f"{self.device.name}:{life}"
            if await self.device.connect(Will(f"will/{self.device.name}", value.encode(), 1)):
                self.device.stays_at_its_door = False
                await asyncio.sleep(random.expovariate(0.5))
                if not self.device.is_connected:
                    continue
                if random.random() < 0.7:
                    self.device.drop()
                    self.due.append(value)
                else:
                    self.device.send(Disconnect())
                    self.never.append(value)
                    # Another door's report may arrive first; the same door reports DISCONNECT before it.
                    self.device.stays_at_its_door = True
            await asyncio.sleep(random.expovariate(1.0))


class MqttClients(ClientGroup):
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.is_over = False
        self.is_done = False
        super().__init__(cluster, random)
        self._doors: list[SimulatedDoor] = []
        self._publishers = [
            _Publisher(number, self._device(f"publisher-{number}")) for number in range(_PUBLISHERS)
        ]
        self._subscriber = _Subscriber(self._device("subscriber"))
        self._mortal = _Mortal(self._device("mortal", expiry_s=0))
        self._log: list[tuple[str, str]] = []
        """Topics and values of all messages."""
        self._retained: dict[str, str] = {}
        self._judge: tuple[SimulatedClient, Doors] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def acknowledged(self) -> int:
        return sum(len(each.acknowledged) for each in self._publishers)

    def start(self) -> None:
        self._task = self._cluster.loop.create_task(self._run())

    async def finish(self) -> None:
        """Let publishers finish, wait for pending messages, read the log and the retained messages."""
        self.is_over = True
        assert self._task is not None
        await self._task
        await asyncio.gather(*self._tasks[:-1])
        await self._arrivals()
        self.is_done = True
        await asyncio.sleep(_LEASE_SECONDS)
        assert self._judge is not None
        await self._as(self._judge[0], self._read_log(self._judge[1].partitions))
        await self._read_retained()

    def judge(self) -> list[str]:
        problems = [
            f"{each.name} lost its session {each.sessions_lost} times"
            for each in (self._subscriber.device, *(publisher.device for publisher in self._publishers))
            if each.sessions_lost
        ]
        in_log = Counter(value for _, value in self._log)
        came = Counter(value for value, _ in self._subscriber.got)
        for publisher in self._publishers:
            for value, qos in publisher.acknowledged:
                problems += _counted(value, qos, in_log[value], "in the log")
                problems += _counted(value, qos, came[value], "delivered")
            for seen, where in ((in_log, "in the log"), (came, "delivered")):
                problems += _in_order(publisher, list(seen), where)
            if publisher.retains and publisher.acknowledged:
                newest, found = publisher.acknowledged[-1][0], self._retained.get(publisher.topic)
                if found != newest:
                    problems.append(f"{publisher.topic} has {found} retained instead of {newest}")
        for value in self._mortal.due:
            if in_log[value] != 1:
                problems.append(f"the will {value} was sent {in_log[value]} times")
        problems += [
            f"the will {value} was sent after DISCONNECT" for value in self._mortal.never if in_log[value]
        ]
        problems += [
            f"a connection of {self._subscriber.device.name} is open, though another took its session"
            for wire in self._subscriber.device.left
            if wire.is_open
        ]
        return problems

    # -- helpers of the clients above

    async def _run(self) -> None:
        for number in range(_DOORS):
            client = self._client(f"mqtt-door-{number}")
            await self._as(client, self._open(client))
        await self._subscriber.subscribe()
        work = (
            *(each.run(self) for each in self._publishers),
            self._mortal.run(self),
            self._subscriber.run(self),
        )
        self._tasks = [self._cluster.loop.create_task(each) for each in work]

    async def _open(self, client: SimulatedClient) -> None:
        addresses = [f"{host}:{port}" for host, port in self._cluster.addresses]
        clock = SimulatedClock(self._cluster.loop)
        gateway = GatewayDoors(addresses, AllowAll(), NoQuotas(), clock)
        gateway.start()
        doors = gateway.doors
        self._judge = client, doors
        for topic, configs in ((DEFAULT_TOPIC, ()), ("__mqtt_retained", (("cleanup.policy", "compact"),))):
            await _create(doors, NewTopic(topic, _PARTITIONS, 3, configs=configs))
        random = Random(client.random.getrandbits(64))
        door = MqttDoor(doors, Rules(), MqttLimits(), clock, lambda: f"{random.getrandbits(64):016x}")
        await door.start(None)
        self._doors.append(SimulatedDoor(client.process, door))

    async def _arrivals(self) -> None:
        """Messages that do not arrive in this time are missing."""
        end = self._cluster.loop.time() + _ARRIVAL_SECONDS
        wanted = {value for publisher in self._publishers for value, _ in publisher.acknowledged}
        while self._cluster.loop.time() < end:
            if wanted <= {value for value, _ in self._subscriber.got}:
                return
            await asyncio.sleep(0.5)

    async def _read_log(self, partitions: PartitionAccess) -> None:
        for index in range(_PARTITIONS):
            place = Place(DEFAULT_TOPIC, index)
            offset, end = 0, (await partitions.offsets(_CALLER, place)).latest
            while offset < end:
                try:
                    read = await partitions.read(_CALLER, place, offset)
                except KafkaError as error:
                    if error.code is not ErrorCode.CORRUPT_MESSAGE:
                        raise
                    # The first reader meets the rotten record; meanwhile it is repaired from another replica.
                    await asyncio.sleep(0.5)
                    continue
                for record in read.records():
                    self._log.append(((record.key or b"").decode(), (record.value or b"").decode()))
                offset = max(read.next_offset, offset + 1)

    async def _read_retained(self) -> None:
        """Read retained messages with a new subscription."""
        device = self._device("late", expiry_s=0)
        subscribed = asyncio.Event()

        def heard(packet: Packet) -> None:
            if isinstance(packet, Suback):
                subscribed.set()
            elif isinstance(packet, Publish):
                self._retained[packet.topic] = packet.payload.decode()

        device.on_packet = heard
        await device.connect_surely()
        device.send(Subscribe(1, (Filter("t/#", 0),)))
        await subscribed.wait()
        await asyncio.sleep(5.0)

    def _device(self, name: str, *, expiry_s: int = _EXPIRY_SECONDS) -> Device:
        random = Random(self._random.getrandbits(64))
        return Device(name, self._doors, self._cluster.loop, random, expiry_s=expiry_s)


async def _create(doors: Doors, topic: NewTopic) -> None:
    from millstream.doors.caller import NODE

    while topic.name not in doors.metadata.image.topics:
        try:
            await doors.metadata.create_topics(NODE, [topic])
        except KafkaError:
            await asyncio.sleep(_PAUSE_SECONDS)


def _in_order(publisher: _Publisher, seen: list[str], where: str) -> list[str]:
    """MQTT promises this order for messages of one topic and QoS; the first arrival of each message counts."""
    for wanted in (1, 2):
        sent = [value for value, qos in publisher.acknowledged if qos == wanted]
        mine = set(sent)
        if (got := [value for value in seen if value in mine]) != [value for value in sent if value in seen]:
            return [f"messages of {publisher.topic} and QoS {wanted} are {where} out of order: {got}"]
    return []


def _counted(value: str, qos: int, count: int, where: str) -> list[str]:
    if not count:
        return [f"{value} was acknowledged with QoS {qos} and is not {where}"]
    return [f"{value} of QoS 2 is {where} {count} times"] if qos == 2 and count > 1 else []
