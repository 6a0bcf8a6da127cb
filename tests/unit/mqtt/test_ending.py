"""The coordinator of a session hears how its connection ended, however long it is away: a will hangs on that."""

import asyncio
from types import SimpleNamespace

import pytest

from millstream.mqtt.door import MqttDoor
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.rules import Rules
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Connect, Disconnect, Will
from millstream.protocol.mqtt.reasons import Reason
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.machine import SimulatedClock
from support.mqtt_coordinator import Coordinator

# Far longer than a lease, and than anybody waited for a coordinator before.
AWAY_SECONDS = 300
LATER_SECONDS = 60


class _Line:
    """What a door reaches coordinators through: there is one, and it may be away for a while."""

    def __init__(self, loop):
        self.coordinator = Coordinator()
        self._loop = loop
        self._since = loop.time()
        self.is_away = False

    async def ask(self, _caller, _kind, _key, request, *, timeout_s=10.0):
        await asyncio.sleep(0.01)
        if self.is_away:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is away")
        self.pass_time()
        answer = self.coordinator.ask(request)
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


class _Wire:
    host = "device"

    def __init__(self):
        self.got = []
        self._decoder = Decoder(side=Side.CLIENT, version=V5)

    def write(self, data):
        self.got += self._decoder.feed(data)

    def close(self): ...
    def abort(self): ...
    def pause_reading(self): ...
    def resume_reading(self): ...


class _House:
    """A door that is not listened at, and the line to its coordinator."""

    def __init__(self, loop):
        self.line = _Line(loop)
        topic = SimpleNamespace(partitions=[None])
        doors = SimpleNamespace(
            coordinators=self.line,
            partitions=None,
            view=SimpleNamespace(node_id=1),
            metadata=SimpleNamespace(image=SimpleNamespace(topic=lambda _name: topic)),
        )
        self.door = MqttDoor(doors, Rules(), MqttLimits(), SimulatedClock(loop), lambda: "id")

    def connect(self, text, *more):
        wire = _Wire()
        user = self.door.accept(wire)
        will = Will("will/c", text.encode(), 1)
        packets = (Connect("c", V5, True, 0, None, None, will), *more)
        user.data(b"".join(encode(packet, V5) for packet in packets))
        return wire, user


def run(scenario):
    loop = SimulatedLoop()
    return loop.run(scenario(_House(loop)))


@pytest.mark.parametrize("waits_for_connack", [True, False], ids=["after CONNACK", "before CONNACK"])
def test_a_will_stays_unsent_though_the_coordinator_was_away_at_disconnect(waits_for_connack):
    async def scenario(house):
        line = house.line
        if waits_for_connack:
            wire, user = house.connect("first")
            await asyncio.sleep(1)
            assert wire.got[0].reason == 0
            line.is_away = True
            user.data(encode(Disconnect(), V5))
        else:
            house.connect("first", Disconnect())
            await asyncio.sleep(0.015)
            line.is_away = True
        await asyncio.sleep(AWAY_SECONDS)
        line.come_back()
        await asyncio.sleep(LATER_SECONDS)
        line.pass_time()
        assert line.coordinator.sent() == []
        assert not line.coordinator.machine.state.sessions

    run(scenario)


def test_who_comes_back_to_the_same_door_does_not_overtake_its_disconnect():
    async def scenario(house):
        line = house.line
        _, user = house.connect("first")
        await asyncio.sleep(1)
        line.is_away = True
        user.data(encode(Disconnect(), V5))
        refused, _ = house.connect("second")
        await asyncio.sleep(AWAY_SECONDS)
        assert refused.got[0].reason == Reason.SERVER_UNAVAILABLE
        third, user = house.connect("third")
        line.come_back()
        await asyncio.sleep(LATER_SECONDS)
        assert third.got[0].reason == 0
        user.lost()
        await asyncio.sleep(1)
        line.pass_time()
        assert line.coordinator.sent() == ["third"]

    run(scenario)


def test_a_door_that_closes_does_not_wait_for_a_coordinator():
    async def scenario(house):
        house.connect("first")
        await asyncio.sleep(1)
        house.line.is_away = True
        (client,) = house.door.shared.attending.clients.values()
        client.close(Reason.SERVER_SHUTTING_DOWN)
        await asyncio.sleep(AWAY_SECONDS)
        assert not client.ended.done()
        await house.door.stop()
        await asyncio.sleep(1)
        assert client.ended.done()
        assert len(asyncio.all_tasks()) == 1

    run(scenario)
