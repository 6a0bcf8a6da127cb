"""A message in flight to an MQTT client rots: it is repaired from another replica, and sent again."""

import asyncio
from typing import Any

from millstream.mqtt.door import MqttDoor
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.rules import Rules
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Connack, Connect, Filter, Packet, Publish, Subscribe
from millstream.protocol.mqtt.properties import ConnectProperties
from millstream.runtime.clock import SystemClock
from support.mqtt_house import Wire
from support.three_nodes import ThreeNodes, until

CONNECT = Connect("c", V5, clean_start=False, properties=ConnectProperties(session_expiry_s=3600))


async def got(wire: Wire, kind: type[Any]) -> Any:
    async with asyncio.timeout(60):
        while True:
            for packet in wire.got:
                if isinstance(packet, kind):
                    return packet
            await asyncio.sleep(0.02)


def connected(door: MqttDoor, *packets: Packet) -> tuple[Wire, Any]:
    wire = Wire()
    user = door.accept(wire)
    assert user is not None
    user.data(b"".join(encode(packet, V5) for packet in (CONNECT, *packets)))
    return wire, user


async def sent_again(three: ThreeNodes) -> Publish:
    doors = three.nodes[1].broker.services.node_doors.doors
    door = MqttDoor(doors, Rules(), MqttLimits(), SystemClock(), lambda: "test")
    await door.start(None)
    wire, user = connected(door, Subscribe(1, (Filter("a", 2),)), Publish("a", b"one", 2, 7))
    first = await got(wire, Publish)
    (in_flight,) = user.machine.outbound.in_flight
    place = in_flight.delivery.outgoing.place
    user.lost()
    await user.ended
    leader = three.nodes[1].broker.metadata.image.topics["mqtt"].partitions[place.partition].leader
    partition = three.nodes[leader].broker.partitions.get("mqtt", place.partition)
    assert partition is not None
    three.disks[leader].flip_bit(partition.log.segments[0].log_path, 70)
    while True:
        wire, _ = connected(door)
        if not (await got(wire, Connack)).reason:
            break
    again: Publish = await got(wire, Publish)
    assert again.packet_id == first.packet_id
    await door.stop()
    return again


def test_a_message_in_flight_that_rots_is_sent_again_from_a_sound_copy(three: ThreeNodes) -> None:
    assert three.create(1, "mqtt", 3) == 0
    until(lambda: three.knows(1, "mqtt"))
    again = asyncio.run_coroutine_threadsafe(sent_again(three), three.nodes[1].loop).result(90)
    assert (again.payload, again.dup) == (b"one", True)
