"""The coordinator of a session hears how its connection ended, however long it is away: a will hangs on that."""

import asyncio

import pytest

from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Disconnect, Pingreq, Pingresp
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_house import run

# Far longer than a lease, and than anybody waited for a coordinator before.
AWAY_SECONDS = 300
LATER_SECONDS = 60


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


def test_who_is_silent_for_one_and_a_half_times_its_keep_alive_is_told_and_its_will_is_sent():
    async def scenario(house):
        wire, user = house.connect("gone", keep_alive_s=10)
        await asyncio.sleep(14)
        user.data(encode(Pingreq(), V5))
        await asyncio.sleep(14)
        assert type(wire.got[-1]) is Pingresp
        await asyncio.sleep(2)
        assert wire.got[-1].reason == Reason.KEEP_ALIVE_TIMEOUT
        house.line.pass_time()
        assert house.line.coordinator.sent() == ["gone"]

    run(scenario)


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_a_session_whose_opening_was_not_heard_of_is_given_up(expiry_s):
    """The node's signs of life for its other clients kept it, without a connection, for as long as the node ran."""

    async def scenario(house):
        line = house.line
        house.join("other")
        await asyncio.sleep(1)
        line.loses_answers = True
        wire, _ = house.join("c", expiry_s=expiry_s)
        await asyncio.sleep(1)
        assert wire.got[0].reason == Reason.SERVER_UNAVAILABLE
        sessions = line.coordinator.machine.state.sessions
        line.loses_answers = False
        await asyncio.sleep(LATER_SECONDS)
        assert {name: bool(each.stored.node) for name, each in sessions.items()} == (
            {"other": True, "c": False} if expiry_s else {"other": True}
        )
        assert list(house.door.shared.attending.clients) == ["other"]
        again, _ = house.join("c", expiry_s=expiry_s)
        await asyncio.sleep(1)
        assert again.got[0].reason == 0

    run(scenario)


def test_who_comes_back_before_that_waits_for_it():
    async def scenario(house):
        line = house.line
        line.loses_answers = True
        house.connect("first")
        await asyncio.sleep(1)
        second, _ = house.connect("second")
        await asyncio.sleep(1)
        line.loses_answers = False
        await asyncio.sleep(LATER_SECONDS)
        assert second.got[0].reason == 0
        line.pass_time()
        assert line.coordinator.sent() == [], "who never heard that it was connected has no will"

    run(scenario)


def test_of_many_that_wait_for_one_session_only_the_newest_opens_it():
    """Each opened it and left it again, in turn: the newest was refused after 5 s."""

    async def scenario(house):
        wires = [house.join("c")[0] for _ in range(50)]
        await asyncio.sleep(1)
        assert house.line.asked.count("OpenSession") == 2
        assert [each.got[0].reason for each in wires] == [Reason.SERVER_UNAVAILABLE] * 49 + [0]
        attending = house.door.shared.attending
        assert (list(attending.clients), attending.waiting) == (["c"], {})

    run(scenario)


def test_one_that_has_ended_and_is_still_there_keeps_nobody_out():
    """As after a failure that nobody foresaw."""

    async def scenario(house):
        _, user = house.join("c")
        await asyncio.sleep(1)
        user.lost()
        await asyncio.sleep(1)
        house.door.shared.attending.clients["c"] = user
        again, _ = house.join("c")
        await asyncio.sleep(1)
        assert again.got[0].reason == 0

    run(scenario)
