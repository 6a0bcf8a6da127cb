"""Enhanced authentication by one who is plugged in: AUTH packets between CONNECT and CONNACK, and later again."""

import asyncio
from types import SimpleNamespace

import pytest

from millstream.doors.caller import Principal
from millstream.mqtt.authenticating import Authenticated
from millstream.mqtt.door import MqttDoor
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.rules import Rules
from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Auth, Connack, Connect, Disconnect
from millstream.protocol.mqtt.properties import AuthProperties, ConnectProperties
from millstream.protocol.mqtt.reasons import Reason, Violation
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.machine import SimulatedClock
from support.mqtt_coordinator import Coordinator


class _Riddles:
    """A client names a user, and answers a riddle with that name backwards."""

    async def authenticate(self, connect, _host, ask):
        if connect.properties.authentication_method != "RIDDLE":
            raise Violation(Reason.BAD_AUTHENTICATION_METHOD, "only riddles here")
        user = connect.properties.authentication_data
        if await ask(b"backwards?") != user[::-1]:
            raise Violation(Reason.NOT_AUTHORIZED, "that is wrong")
        return Authenticated(Principal("User", user.decode()), b"welcome")


class _Line:
    def __init__(self):
        self._coordinator = Coordinator()

    async def ask(self, _caller, _kind, _key, request, *, timeout_s=10.0):
        answer = self._coordinator.ask(request)
        return await asyncio.sleep(timeout_s) if answer is None else answer


class _Device:
    """The client's side; `said` is what it heard last."""

    host = "device"

    def __init__(self, door):
        self.heard = []
        self._decoder = Decoder(side=Side.CLIENT, version=V5)
        self._user = door.accept(self)

    async def say(self, packet):
        self._user.data(encode(packet, V5))
        await asyncio.sleep(1)
        return self.heard[-1]

    async def connect(self, user, method="RIDDLE"):
        properties = ConnectProperties(authentication_method=method, authentication_data=user)
        return await self.say(Connect("c", V5, properties=properties))

    async def answer(self, data, reason=0x18):
        return await self.say(Auth(reason, _auth(data)))

    def lost(self):
        self._user.lost()

    def write(self, data):
        self.heard += self._decoder.feed(data)

    def close(self): ...
    def abort(self): ...
    def pause_reading(self): ...
    def resume_reading(self): ...


def _auth(data=None):
    return AuthProperties(authentication_method="RIDDLE", authentication_data=data)


def run(scenario):
    loop = SimulatedLoop()
    doors = SimpleNamespace(
        coordinators=_Line(), partitions=None, view=SimpleNamespace(node_id=1), metadata=None
    )
    door = MqttDoor(
        doors, Rules(), MqttLimits(), SimulatedClock(loop), lambda: "id", authenticator=_Riddles()
    )

    async def whole():
        await scenario(_Device(door))
        await door.stop()

    loop.run(whole())


def test_a_client_that_answers_is_let_in_and_may_do_it_again():
    async def scenario(device):
        assert await device.connect(b"ada") == Auth(0x18, _auth(b"backwards?"))
        connack = await device.answer(b"ada")
        assert isinstance(connack, Connack)
        assert (connack.reason, connack.properties.authentication_data) == (0, b"welcome")
        assert await device.answer(b"ada", 0x19) == Auth(0x18, _auth(b"backwards?"))
        assert await device.answer(b"ada") == Auth(0x00, _auth(b"welcome"))
        # Another one than before is not the one whose connection it is.
        await device.answer(b"eve", 0x19)
        left = await device.answer(b"eve")
        assert isinstance(left, Disconnect)
        assert left.reason == Reason.NOT_AUTHORIZED

    run(scenario)


@pytest.mark.parametrize(("method", "reason"), [("RIDDLE", Reason.NOT_AUTHORIZED), ("OTHER", 0x8C)])
def test_one_that_does_not_is_refused(method, reason):
    async def scenario(device):
        heard = await device.connect(b"bob", method)
        if method == "RIDDLE":
            heard = await device.answer(b"???")
        assert isinstance(heard, Connack)
        assert heard.reason == reason

    run(scenario)


def test_one_that_leaves_instead_of_answering_is_forgotten():
    async def scenario(device):
        await device.connect(b"ada")
        device.lost()
        await asyncio.sleep(1)

    run(scenario)
