"""An MQTT client in the simulation: its session outlives its connections, which break and reopen at any door."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

from millstream.mqtt.door import MqttDoor
from millstream.mqtt.wire import WireUser
from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Connack, Connect, Packet, Will
from millstream.protocol.mqtt.properties import ConnectProperties
from millstream.testing.simulator.loop import Process, SimulatedLoop

_ANSWER_SECONDS = 12.0
_PAUSE_SECONDS = 0.5
_WAY_SECONDS = 0.002


class SimulatedDoor:
    """A door in its own process."""

    def __init__(self, process: Process, door: MqttDoor) -> None:
        self.process = process
        self.door = door


class DeviceWire:
    """One connection: bytes arrive at the other end a little later, in both directions."""

    def __init__(self, loop: SimulatedLoop, door: SimulatedDoor, on_packet: Callable[[Packet], None]) -> None:
        self.host = "device"
        self.is_open = True
        self._loop = loop
        self._door = door
        self._on_packet = on_packet
        self._decoder = Decoder(side=Side.CLIENT, version=V5)
        self._user: WireUser | None = None
        self.closed = asyncio.Event()
        loop.call_soon(self._connect, context=door.process.context)

    def _connect(self) -> None:
        self._user = self._door.door.accept(self)
        if self._user is None:
            self.abort()

    # -- for the door

    def write(self, data: bytes) -> None:
        self._loop.call_later(_WAY_SECONDS, self._arrived, data)

    def close(self) -> None:
        self._loop.call_later(_WAY_SECONDS, self._shut)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    # -- for the device

    def send(self, *packets: Packet) -> None:
        data = b"".join(encode(each, V5) for each in packets)
        self._loop.call_later(_WAY_SECONDS, self._deliver, data, context=self._door.process.context)

    def drop(self) -> None:
        """Close without DISCONNECT."""
        if self.is_open:
            self._shut()
            self._loop.call_later(_WAY_SECONDS, self._lost, context=self._door.process.context)

    def _deliver(self, data: bytes) -> None:
        if self._user is not None and self.is_open:
            self._user.data(data)

    def _lost(self) -> None:
        if self._user is not None:
            self._user.lost()

    def _arrived(self, data: bytes) -> None:
        if self.is_open:
            for packet in self._decoder.feed(data):
                if isinstance(packet, Exception):
                    raise packet
                self._on_packet(packet)

    def _shut(self) -> None:
        self.is_open = False
        self.closed.set()


class Device:
    """`on_packet` gets every packet of the newest connection except CONNACK."""

    def __init__(
        self, name: str, doors: list[SimulatedDoor], loop: SimulatedLoop, random: Random, *, expiry_s: int
    ) -> None:
        self.name = name
        self.random = random
        self.loop = loop
        self.wire: DeviceWire | None = None
        self.left: list[DeviceWire] = []
        """Connections from which a newer one took the session while they were open."""
        self.on_packet: Callable[[Packet], None] = lambda _: None
        self.sessions_lost = 0
        self.stays_at_its_door = False
        """Whether it reconnects to its last door; otherwise to any door."""
        self._doors = doors
        self._door: SimulatedDoor | None = None
        self._expiry_s = expiry_s
        self._has_session = False
        self._answer: asyncio.Future[Connack] | None = None

    @property
    def is_connected(self) -> bool:
        return self.wire is not None and self.wire.is_open

    async def connect(self, will: Will | None = None) -> bool:
        """Whether the door accepted the connection, which resumes the former session."""
        if self.wire is not None and self.wire.is_open:
            self.left.append(self.wire)
        properties = ConnectProperties(session_expiry_s=self._expiry_s, receive_maximum=50)
        packet = Connect(self.name, V5, not self._expiry_s, 0, None, None, will, properties)
        self._answer = self.loop.create_future()
        wire: DeviceWire | None = None

        def arrived(packet: Packet) -> None:
            if wire is self.wire:
                self._arrived(packet)

        if self._door is None or not self.stays_at_its_door:
            self._door = self.random.choice(self._doors)
        wire = self.wire = DeviceWire(self.loop, self._door, arrived)
        wire.send(packet)
        with suppress(TimeoutError):
            connack = await asyncio.wait_for(self._answer, _ANSWER_SECONDS)
            if not connack.reason:
                # Without an answer the session may or may not exist.
                self.sessions_lost += self._has_session and not connack.session_present
                self._has_session = self._expiry_s > 0
                return True
        wire.drop()
        await asyncio.sleep(_PAUSE_SECONDS * (0.5 + self.random.random()))
        return False

    async def connect_surely(self) -> None:
        while not await self.connect():
            pass

    def drop(self) -> None:
        if self.wire is not None:
            self.wire.drop()

    def send(self, *packets: Packet) -> None:
        if self.wire is not None and self.wire.is_open:
            self.wire.send(*packets)

    def _arrived(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(packet)
        else:
            self.on_packet(packet)
