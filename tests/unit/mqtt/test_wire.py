"""Connections beyond the limit are told so, and cost no more than that."""

import asyncio
from types import SimpleNamespace

import pytest

from millstream.mqtt.door import MqttDoor
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.listeners import TcpWire, WebSocketWire
from millstream.mqtt.rules import Rules
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V3, V5, Connect, Pingreq, Publish
from millstream.runtime.clock import SystemClock
from support.mqtt_house import run

REFUSED_AT_ONCE = 100


class Wire:
    host = "device"

    def __init__(self):
        self.written = b""
        self.is_closed = False

    def write(self, data):
        self.written += data

    def close(self):
        self.is_closed = True

    def abort(self):
        self.is_closed = True


class Transport:
    def __init__(self):
        self.written = b""

    def write(self, data):
        self.written += data

    def get_extra_info(self, _name):
        return ("10.0.0.1", 1)

    def is_closing(self):
        return False

    def set_write_buffer_limits(self, high): ...
    def write_eof(self): ...
    def pause_reading(self): ...
    def resume_reading(self): ...


def full(house):
    return MqttDoor(
        house.door.shared.doors, Rules(), MqttLimits(), SystemClock(), lambda: "id", max_connections=0
    )


@pytest.mark.parametrize(
    ("version", "answer"), [(V5, bytes((0x20, 3, 0, 0x97, 0))), (V3, bytes((0x20, 2, 0, 3)))]
)
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_a_connection_too_many_is_told_so(version, answer, at_once):
    async def scenario(house):
        wire = Wire()
        user = full(house).accept(wire)
        sent = encode(Connect("client" * 30, version), version)
        for at in range(0, len(sent), at_once):
            assert not wire.is_closed or at > 10
            user.data(sent[at : at + at_once])
            if wire.is_closed:
                break
        assert (wire.written, wire.is_closed) == (answer, True)

    run(scenario)


@pytest.mark.parametrize(
    "sent",
    [encode(Pingreq(), V5), b"GET / HTTP/1.1\r\n", b"\x10\xff\xff\xff\xff\xff", b"\x10\x10\x00\x04HTTP\x05"],
)
def test_who_speaks_something_else_is_told_nothing(sent):
    async def scenario(house):
        wire = Wire()
        full(house).accept(wire).data(sent)
        assert (wire.written, wire.is_closed) == (b"", True)

    run(scenario)


def test_a_few_at_a_time_are_told():
    async def scenario(house):
        door = full(house)
        wires = [Wire() for _ in range(REFUSED_AT_ONCE)]
        assert all(door.accept(wire) is not None for wire in wires)
        assert door.accept(Wire()) is None
        await asyncio.sleep(10)
        assert all(wire.is_closed for wire in wires), "one that says nothing is not waited for"
        assert door.accept(Wire()) is not None

    run(scenario)


def test_over_websocket_the_upgrade_is_refused():
    async def scenario(house):
        wire, transport = WebSocketWire(full(house).accept, 1000, 1000), Transport()
        wire.connection_made(transport)
        wire.data_received(
            b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert transport.written.startswith(b"HTTP/1.1 503 ")

    run(scenario)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", encode(Pingreq(), V5)])
def test_who_breaks_the_protocol_is_closed_and_logged_once_in_a_while(data, monkeypatch):
    lines = []
    warning = lambda event, **fields: lines.append((event, fields))  # noqa: E731
    monkeypatch.setattr("millstream.mqtt.client.log", SimpleNamespace(warning=warning))

    async def scenario(house):
        for _ in range(3):
            wire = Wire()
            house.door.accept(wire).data(data)
            assert wire.is_closed

    run(scenario)
    ((event, fields),) = lines
    assert (event, fields["host"]) == ("connection closed", "device")
    assert fields["reason"]


def test_tiny_packets_take_turns():
    """A piece of 50,000 of them held everybody up for a tenth of a second."""
    got = []

    async def scenario(_house):
        user = SimpleNamespace(data=got.append, lost=lambda: None)
        wire = TcpWire(lambda _wire: user, 1000)
        wire.connection_made(Transport())
        piece = encode(Publish("a", b""), V3) * 50_000
        wire.data_received(piece)
        assert len(got) == 1
        wire.pause_reading()
        await asyncio.sleep(1)
        assert len(got) == 1, "who is not read from is not read from what has come either"
        wire.resume_reading()
        await asyncio.sleep(1)
        assert b"".join(got) == piece
        assert max(map(len, got)) <= 16 << 10

    run(scenario)
