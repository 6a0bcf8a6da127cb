"""What a client's session is asked: many of a kind together, and no more than is bounded while an answer is awaited."""

import asyncio

from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Pubcomp, Publish, Pubrec, Pubrel
from support.mqtt_house import run


def said(wire, kind):
    return [packet.packet_id for packet in wire.got if type(packet) is kind]


def test_messages_and_releases_that_come_together_are_kept_together():
    async def scenario(house):
        wire, user = house.connect("will")
        await asyncio.sleep(1)
        user.data(b"".join(encode(Publish("t", b"x", 2, number), V5) for number in (1, 2)))
        await asyncio.sleep(1)
        assert said(wire, Pubrec) == [1, 2]
        house.line.asked.clear()
        mixed = Pubrel(1), Publish("t", b"x", 2, 3), Pubrel(2), Publish("t", b"x", 2, 4)
        user.data(b"".join(encode(packet, V5) for packet in mixed))
        await asyncio.sleep(1)
        assert sorted(house.line.asked) == ["Receive", "Release"]
        assert said(wire, Pubcomp) == [1, 2]
        assert said(wire, Pubrec) == [1, 2, 3, 4]

    run(scenario)


def test_who_sends_messages_of_qos_2_far_ahead_is_not_read_until_they_are_kept():
    async def scenario(house):
        wire, user = house.connect("will")
        await asyncio.sleep(1)
        large = b"x" * 300_000
        # The first is on its way when the others come.
        user.data(encode(Publish("t", large, 2, 1), V5))
        await asyncio.sleep(0)
        assert not wire.is_paused
        for number in range(2, 6):
            user.data(encode(Publish("t", large, 2, number), V5))
        assert wire.is_paused
        await asyncio.sleep(1)
        assert said(wire, Pubrec) == [1, 2, 3, 4, 5]
        assert not wire.is_paused

    run(scenario)
