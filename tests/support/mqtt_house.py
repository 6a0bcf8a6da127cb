"""A door that is not listened at, on virtual time: clients by their bytes, and a coordinator that may be away."""

import asyncio
from copy import copy
from types import SimpleNamespace
from uuid import UUID

from millstream.coordinator.mqtt_sessions.requests import Attend
from millstream.mqtt.door import MqttDoor
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.rules import Rules
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Connect, Will
from millstream.protocol.mqtt.properties import ConnectProperties
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.machine import SimulatedClock
from support.mqtt_coordinator import Coordinator


class Line:
    """What a door reaches coordinators through: there is one, and it may be away for a while."""

    def __init__(self, loop):
        self.coordinator = Coordinator()
        self._loop = loop
        self._since = loop.time()
        self.is_away = False
        self.loses_answers = False
        """What it is asked is done, and not answered."""
        self.asked = []
        """Names of the requests, without signs of life."""

    async def ask(self, _caller, _kind, _key, request, *, timeout_s=10.0):
        if not isinstance(request, Attend):
            self.asked.append(type(request).__name__)
        await asyncio.sleep(0.01)
        if self.is_away:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is away")
        self.pass_time()
        answer = self.coordinator.ask(request)
        if self.loses_answers:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it may have been done or not")
        if answer is None:
            # A sign of life waits for news; nobody's session is taken over here.
            await asyncio.sleep(min(timeout_s, 3.0))
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "there was no news")
        return answer

    def pass_time(self):
        now = self._loop.time()
        self.coordinator.wait(now - self._since)
        self._since = now

    def come_back(self):
        """At another node, say: it is built again from its log."""
        self.coordinator.now_ms += round((self._loop.time() - self._since) * 1000)
        self._since = self._loop.time()
        self.coordinator.crash()
        self.is_away = False


class Wire:
    host = "device"

    def __init__(self):
        self.got = []
        self.is_paused = False
        self._decoder = Decoder(side=Side.CLIENT, version=V5)

    def write(self, data):
        self.got += self._decoder.feed(data)

    def close(self): ...
    def abort(self): ...

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False


class House:
    """A door that is not listened at, and the line to its coordinator."""

    def __init__(self, loop, rules=Rules(), **parts):  # noqa: B008 - nothing changes them
        """`parts` are of what the door sees of a cluster, in place of nothing."""
        self.line = Line(loop)
        topic = self.topic = SimpleNamespace(partitions=[None], topic_id=UUID(int=1))
        doors = SimpleNamespace(
            coordinators=self.line,
            view=SimpleNamespace(node_id=1, leader=lambda _place: 1),
            metadata=SimpleNamespace(image=SimpleNamespace(topic=lambda _name: topic)),
            authoriser=SimpleNamespace(allows=lambda _caller, _permission: True),
        )
        doors.partitions = None
        vars(doors).update(parts)
        self.door = MqttDoor(doors, rules, MqttLimits(), SimulatedClock(loop), lambda: "id")

    def make_topic_again(self):
        """Under another identity; the door hears of it."""
        before = copy(self.topic)
        old = SimpleNamespace(topics=before.topic_id, topic=lambda _name: before)
        self.topic.topic_id = UUID(int=self.topic.topic_id.int + 1)
        self.door.shared.doors.metadata.image.topics = self.topic.topic_id
        self.door.metadata_changed(old, self.door.shared.doors.metadata.image)

    def join(self, client_id, *more, expiry_s=0, clean=True):
        """A client without a will."""
        properties = ConnectProperties(session_expiry_s=expiry_s)
        return self._accept(Connect(client_id, V5, clean, properties=properties), *more)

    def connect(self, text, *more, keep_alive_s=0):
        will = Will("will/c", text.encode(), 1)
        return self._accept(Connect("c", V5, True, keep_alive_s, None, None, will), *more)

    def _accept(self, *packets):
        wire = Wire()
        user = self.door.accept(wire)
        user.data(b"".join(encode(packet, V5) for packet in packets))
        return wire, user


def run(scenario, **parts):
    loop = SimulatedLoop()

    async def lived_in():
        house = House(loop, **parts)
        try:
            return await scenario(house)
        finally:
            await house.door.stop()

    return loop.run(lived_in())
