"""A topic is deleted and made again under its name: what is in the new one is read from its start."""

import asyncio

import pytest
from msgspec.structs import replace

from millstream.coordinator.mqtt_sessions.records import (
    FlightKey,
    FlightStage,
    Position,
    PositionsKey,
    SessionRecord,
    StoredFlight,
    StoredPositions,
    decode_record,
    encode_record,
)
from millstream.coordinator.mqtt_sessions.requests import Reserve, SaveProgress
from millstream.doors import Place
from millstream.protocol.mqtt.packets import Filter, Publish, Suback, Subscribe
from support.mqtt_coordinator import Coordinator
from support.mqtt_house import run
from support.mqtt_log import Log

FIRST = Place("mqtt", 0)
OLD, NEW = b"o" * 16, b"n" * 16


def subscribe(qos=1):
    return Subscribe(1, (Filter("t", qos),))


def payloads(wire):
    return [packet.payload for packet in wire.got if isinstance(packet, Publish)]


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_a_subscriber_gets_what_is_in_the_new_topic(expiry_s):
    """It waited behind as many messages as the old topic had had."""
    log = Log()

    async def scenario(house):
        wire, _ = house.join("c", subscribe(), expiry_s=expiry_s)
        await asyncio.sleep(1)
        for value in (b"a", b"b", b"c"):
            log.add(FIRST, value)
        await asyncio.sleep(1)
        log.make_again(FIRST)
        log.add(FIRST, b"d")
        house.make_topic_again()
        await asyncio.sleep(1)
        log.add(FIRST, b"e")
        await asyncio.sleep(1)
        assert payloads(wire) == [b"a", b"b", b"c", b"d", b"e"]

    run(scenario, partitions=log)


@pytest.mark.parametrize("saved", [False, True])
def test_a_session_that_was_away_gets_what_is_in_the_new_topic(saved):
    log = Log()

    async def scenario(house):
        wire, user = house.join("c", subscribe(qos=0), expiry_s=3600)
        await asyncio.sleep(1)
        for value in (b"a", b"b", b"c"):
            log.add(FIRST, value)
        await asyncio.sleep(10 if saved else 1)
        user.lost()
        await asyncio.sleep(1)
        house.line.come_back()
        log.make_again(FIRST)
        log.add(FIRST, b"d")
        house.make_topic_again()
        again, _ = house.join("c", expiry_s=3600, clean=False)
        await asyncio.sleep(1)
        assert (payloads(wire), payloads(again)) == ([b"a", b"b", b"c"], [b"d"])

    run(scenario, partitions=log)


def test_a_session_that_saw_the_new_topic_goes_on_in_it():
    log = Log()

    async def scenario(house):
        _, user = house.join("c", subscribe(qos=0), expiry_s=3600)
        await asyncio.sleep(1)
        for value in (b"a", b"b", b"c"):
            log.add(FIRST, value)
        await asyncio.sleep(10)
        log.make_again(FIRST)
        log.add(FIRST, b"d")
        house.make_topic_again()
        await asyncio.sleep(1)
        user.lost()
        await asyncio.sleep(1)
        log.add(FIRST, b"e")
        again, _ = house.join("c", expiry_s=3600, clean=False)
        await asyncio.sleep(1)
        assert payloads(again) == [b"e"]

    run(scenario, partitions=log)


def test_what_was_in_flight_from_the_old_topic_is_not_read_from_the_new_one():
    """Another message was sent under its identifier, and once more as itself."""
    log = Log()

    async def scenario(house):
        wire, user = house.join("c", subscribe(qos=1), expiry_s=3600)
        await asyncio.sleep(1)
        log.add(FIRST, b"a")
        await asyncio.sleep(10)
        user.lost()
        await asyncio.sleep(1)
        log.make_again(FIRST)
        log.add(FIRST, b"d")
        house.make_topic_again()
        again, _ = house.join("c", expiry_s=3600, clean=False)
        await asyncio.sleep(1)
        assert (payloads(wire), payloads(again)) == ([b"a"], [b"d"])

    run(scenario, partitions=log)


def test_subscribing_does_not_wait_for_the_end_of_a_topic_that_is_gone():
    log = Log()

    class Late(Log):
        """Its tails are slower than who asks for the end."""

        async def follow(self, _caller, place, offset):
            await asyncio.sleep(5)
            async for read in Log.follow(log, None, place, offset):
                yield read

    late = Late()
    late.offsets, late.read = log.offsets, log.read

    async def scenario(house):
        house.join("other", subscribe())
        await asyncio.sleep(1)
        log.add(FIRST, b"a")
        wire, _ = house.join("c", subscribe())
        await asyncio.sleep(1)
        assert Suback not in map(type, wire.got)
        log.make_again(FIRST)
        house.make_topic_again()
        await asyncio.sleep(1)
        assert Suback in map(type, wire.got)

    run(scenario, partitions=late)


def test_what_the_old_topic_of_retained_messages_had_is_retained_no_more():
    log = Log()
    place = Place("__mqtt_retained", 0)

    async def scenario(house):
        retained = house.door.shared.retained
        retained.follow([place])
        log.add(place, b"a", topic="t")
        log.add(place, b"b", topic="u")
        await asyncio.sleep(1)
        assert retained.count == 2
        log.make_again(place)
        log.add(place, b"c", topic="v")
        house.make_topic_again()
        await asyncio.sleep(1)
        found = [each.message.payload async for some in retained.find("#", 0) for each in some]
        assert found == [b"c"]

    run(scenario, partitions=log)


@pytest.mark.parametrize(
    ("before", "told", "after"),
    [
        (Position("t", 0, 9, 12, OLD), Position("t", 0, 3, 4, OLD), Position("t", 0, 9, 12, OLD)),
        (Position("t", 0, 9, 12, OLD), Position("t", 0, 3, 4, NEW), Position("t", 0, 3, 4, NEW)),
        # Of nodes that do not know of identities yet, or did not when it was kept.
        (Position("t", 0, 9, 12), Position("t", 0, 10, 4, NEW), Position("t", 0, 10, 12, NEW)),
        (Position("t", 0, 9, 12, OLD), Position("t", 0, 10, 4), Position("t", 0, 10, 12, OLD)),
    ],
)
def test_a_position_goes_back_in_another_topic_only(before, told, after):
    coordinator = Coordinator()
    epoch = coordinator.open("c", expiry_s=60).epoch
    for position in (before, told):
        coordinator.ask(SaveProgress("c", epoch, (position,), ()))
    coordinator.crash()
    assert list(coordinator.machine.state.sessions["c"].positions.values()) == [after]


def test_an_identifier_tells_how_far_the_session_is_in_its_own_topic():
    coordinator = Coordinator()
    epoch = coordinator.open("c", expiry_s=60).epoch
    coordinator.ask(SaveProgress("c", epoch, (Position("t", 0, 9, 12, OLD),), ()))
    flight = StoredFlight("t", 0, 2, 2, 0, FlightStage.SENT, 1, (), NEW)
    coordinator.ask(Reserve("c", epoch, ((1, flight),)))
    coordinator.crash()
    session = coordinator.machine.state.sessions["c"]
    assert (session.positions["t", 0], session.flights[1]) == (Position("t", 0, 0, 3, NEW), flight)


def test_records_of_nodes_that_kept_no_identities_are_read_and_they_read_these():
    """Theirs end where the identities begin."""
    positions = StoredPositions.of([Position("t", 0, 9, 12, NEW)])
    key, data = encode_record(SessionRecord(PositionsKey("c"), positions))
    older = b"\0\0" + data[2 : -len(b"....") - len(b"....") - len(NEW)]
    assert decode_record(key, data).value.by_place() == {("t", 0): Position("t", 0, 9, 12, NEW)}
    assert decode_record(key, older).value.by_place() == {("t", 0): Position("t", 0, 9, 12)}
    flight = StoredFlight("t", 0, 2, 2, 0, FlightStage.SENT, 1, (5,), NEW)
    key, data = encode_record(SessionRecord(FlightKey("c", 1), flight))
    older = b"\0\0" + data[2 : -len(b"....") - len(NEW)]
    assert decode_record(key, data).value == flight
    assert decode_record(key, older).value == replace(flight, topic_id=b"")
