"""SUBSCRIBE while clients come and go, topics grow, and groups cannot be had."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest

from millstream.coordinator.mqtt_sessions.requests import SaveProgress
from millstream.doors import Place, SettlementKind
from millstream.mqtt import subscribers
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.rules import Rule, Rules
from millstream.mqtt.subscribers import Subscribers
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import (
    V5,
    Disconnect,
    Filter,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_house import run
from support.mqtt_log import Log, Queues

FIRST, SECOND = Place("mqtt", 0), Place("mqtt", 1)


def payloads(wire):
    return [packet.payload for packet in wire.got if isinstance(packet, Publish)]


def subscribe(text="t", qos=1):
    return Subscribe(1, (Filter(text, qos),))


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_who_leaves_takes_nothing_from_one_that_subscribes(expiry_s):
    """Nobody was in the index yet, so nothing was followed any more: the subscriber never got a message."""
    log = Log()

    async def scenario(house):
        _, other = house.join("other")
        await asyncio.sleep(1)
        wire, _ = house.join("c", subscribe(), expiry_s=expiry_s)
        for _ in range(5):
            # At each of the steps of subscribing.
            await asyncio.sleep(0.006)
            other.data(encode(Disconnect(0), V5))
            _, other = house.join("other")
        await asyncio.sleep(1)
        assert Suback in map(type, wire.got)
        log.add(FIRST, b"x")
        await asyncio.sleep(1)
        assert payloads(wire) == [b"x"]

    run(scenario, partitions=log)


def test_who_leaves_while_it_subscribes_leaves_no_subscription_behind():
    async def scenario(house):
        for seconds in (0.0, 0.015, 0.025, 0.035):
            _, user = house.join("c", expiry_s=3600)
            await asyncio.sleep(1)
            user.data(encode(subscribe(), V5))
            await asyncio.sleep(seconds)
            user.lost()
            await asyncio.sleep(1)
            subscribers = house.door.shared.subscribers
            assert (subscribers.index.count, subscribers.position(FIRST)) == (0, None)

    run(scenario, partitions=Log())


def test_who_leaves_while_it_joins_a_queue_leaves_no_consumer_behind():
    """It held messages that others could have had, until their locks ended."""
    log = Log()
    queues = Queues(log)

    async def scenario(house):
        _, user = house.join("c")
        await asyncio.sleep(1)
        user.data(encode(subscribe("$queue/jobs"), V5))
        await asyncio.sleep(0.005)
        user.lost()
        await asyncio.sleep(1)
        assert not house.door.shared.share_groups.running
        assert queues.released == [("c", "mqtt:c")]

    run(scenario, partitions=log, queues=queues)


def group_configs(house):
    image = house.door.shared.doors.metadata.image
    image.group_configs = {"mqtt-share:g:t": {"share.auto.offset.reset": "earliest"}}


def test_who_leaves_while_it_joins_a_group_leaves_no_group_behind():
    """What the group had acquired was handed out to whoever came next, long after its locks had ended."""
    log = Log()
    queues = Queues(log)

    async def scenario(house):
        group_configs(house)
        log.add(FIRST, b"x")
        _, user = house.join("c")
        await asyncio.sleep(1)
        user.data(encode(subscribe("$share/g/t"), V5))
        await asyncio.sleep(0.005)
        user.lost()
        await asyncio.sleep(1)
        assert [(offset, kind.name) for *_, offset, kind in queues.settled] == [(0, "RELEASE")]

    run(scenario, partitions=log, queues=queues)


def test_a_shared_subscription_of_a_session_is_joined_when_its_partitions_are_back():
    """It was given up, and the client got nothing for as long as it was connected."""
    log = Log()
    queues = Queues(log)

    async def scenario(house):
        group_configs(house)
        _, user = house.join("c", subscribe("$share/g/t"), expiry_s=3600)
        await asyncio.sleep(1)
        user.lost()
        await asyncio.sleep(1)
        queues.is_away = True
        wire, user = house.join("c", expiry_s=3600, clean=False)
        await asyncio.sleep(30)
        queues.is_away = False
        log.add(FIRST, b"x")
        await asyncio.sleep(1)
        assert payloads(wire) == [b"x"]

    run(scenario, partitions=log, queues=queues)


def test_a_shared_subscription_that_was_given_back_meanwhile_is_not_joined():
    log = Log()
    queues = Queues(log)

    async def scenario(house):
        group_configs(house)
        _, user = house.join("c", subscribe("$share/g/t"))
        await asyncio.sleep(0.035)
        queues.is_away = True
        user.data(encode(Unsubscribe(2, ("$share/g/t",)), V5))
        await asyncio.sleep(5)
        queues.is_away = False
        await asyncio.sleep(5)
        assert not house.door.shared.share_groups.running

    run(scenario, partitions=log, queues=queues)


@pytest.mark.parametrize("text", ["t", "$share/g/t", "$queue/mqtt/#"])
def test_new_partitions_of_a_topic_are_for_those_who_subscribed_before(text):
    """Publishers used them at once, and subscribers got nothing from there until they connected again."""
    log = Log()

    async def scenario(house):
        group_configs(house)
        wire, _ = house.join("c", subscribe(text))
        await asyncio.sleep(1)
        image = house.door.shared.doors.metadata.image
        before = SimpleNamespace(partitions=[None], topic_id=house.topic.topic_id)
        old = SimpleNamespace(topics=1, topic=lambda _name: before)
        house.topic.partitions.append(None)
        image.topics = 2
        # The first one is there before this node hears of the partition.
        log.add(SECOND, b"x")
        house.door.metadata_changed(old, image)
        await asyncio.sleep(1)
        log.add(SECOND, b"y")
        await asyncio.sleep(1)
        assert payloads(wire) == [b"x", b"y"]

    run(scenario, partitions=log, queues=Queues(log))


def test_identifiers_are_freed_in_a_session_that_reads_no_partition_for_itself():
    """One with shared subscriptions only: its coordinator kept each message of QoS 2 that it was ever sent."""

    async def scenario(house):
        house.join("c", expiry_s=3600)
        await asyncio.sleep(1)
        (client,) = house.door.shared.attending.clients.values()
        client.machine.outbound.freed.add(7)
        await asyncio.sleep(10)
        assert house.line.asked.count(SaveProgress.__name__) == 1

    run(scenario, partitions=Log())


def test_a_batch_that_cannot_be_opened_holds_up_nobody():
    """Any Kafka client could write one, and no subscriber got anything behind it, for ever."""
    log = Log()

    async def scenario(house):
        wire, user = house.join("c", subscribe(), expiry_s=3600)
        await asyncio.sleep(1)
        log.add_unreadable(FIRST)
        log.add(FIRST, b"x")
        await asyncio.sleep(1)
        user.lost()
        await asyncio.sleep(1)
        log.add_unreadable(FIRST)
        log.add(FIRST, b"y")
        again, _ = house.join("c", expiry_s=3600, clean=False)
        await asyncio.sleep(1)
        assert (payloads(wire), payloads(again)) == ([b"x"], [b"x", b"y"])

    run(scenario, partitions=log)


def test_a_batch_that_cannot_be_opened_is_rejected_by_a_shared_subscription():
    log = Log()
    queues = Queues(log)

    async def scenario(house):
        group_configs(house)
        wire, _ = house.join("c", subscribe("$share/g/t"))
        await asyncio.sleep(1)
        log.add_unreadable(FIRST)
        log.add(FIRST, b"x")
        await asyncio.sleep(1)
        assert payloads(wire) == [b"x"]
        assert [(offset, kind) for *_, offset, kind in queues.settled] == [(0, SettlementKind.REJECT)]

    run(scenario, partitions=log, queues=queues)


@pytest.mark.parametrize(("seconds", "got"), [(20, [b"x", b"y"]), (40, [b"x"])])
@pytest.mark.parametrize("limits", [{"max_queued": 1000}, {"max_queued": 1}])
def test_what_waited_for_room_past_its_lock_is_not_sent(monkeypatch, seconds, got, limits):
    """Another member may have it by then: it was sent to both. It waits with the group or with the client."""
    monkeypatch.setattr("support.mqtt_house.MqttLimits", lambda: MqttLimits(max_inflight=1, **limits))
    log = Log()

    async def scenario(house):
        group_configs(house)
        wire, user = house.join("c", subscribe("$share/g/t"))
        await asyncio.sleep(1)
        log.add(FIRST, b"x")
        log.add(FIRST, b"y")
        await asyncio.sleep(seconds)
        (first,) = [packet for packet in wire.got if isinstance(packet, Publish)]
        user.data(encode(Puback(first.packet_id), V5))
        await asyncio.sleep(1)
        assert payloads(wire) == got

    run(scenario, partitions=log, queues=Queues(log))


QOS_2 = (("mqtt.qos", b"2"),)


def test_a_shared_message_says_nothing_of_how_far_its_session_has_read():
    """Its identifier was kept as if the session had read that far: of a filter of its own it missed what lay before."""
    log = Log()

    async def scenario(house):
        group_configs(house)
        wire, _ = house.join("c", subscribe("$share/g/t", 2), expiry_s=3600)
        await asyncio.sleep(1)
        log.add(FIRST, b"x", headers=QOS_2)
        await asyncio.sleep(1)
        assert payloads(wire) == [b"x"]
        session = house.line.coordinator.machine.state.sessions["c"]
        assert (len(session.flights), session.positions) == (1, {})

    run(scenario, partitions=log, queues=Queues(log))


@pytest.mark.parametrize("is_away", [False, True])
def test_a_shared_message_stays_with_a_client_once_it_may_have_been_sent(is_away):
    """One whose identifier was not durable was accepted for its client, and lost if the node ended then."""
    log = Log()
    queues = Queues(log)

    async def scenario(house):
        group_configs(house)
        wire, user = house.join("c", subscribe("$share/g/t", 2), expiry_s=3600)
        await asyncio.sleep(1)
        house.line.is_away = is_away
        log.add(FIRST, b"x", headers=QOS_2)
        await asyncio.sleep(1)
        user.lost()
        await asyncio.sleep(1)
        house.line.is_away = False
        await asyncio.sleep(10)
        kind = SettlementKind.RELEASE if is_away else SettlementKind.ACCEPT
        assert payloads(wire) == ([] if is_away else [b"x"])
        assert [(offset, settled) for *_, offset, settled in queues.settled] == [(0, kind)]
        flights = house.line.coordinator.machine.state.sessions["c"].flights
        assert [each.offset for each in flights.values()] == ([] if is_away else [0])

    run(scenario, partitions=log, queues=queues)


class PartlyLed(Log):
    """Without a leader for some, which is waited for ten seconds."""

    def __init__(self, *not_led):
        super().__init__()
        self.not_led = set(not_led)
        self.asked = []

    async def offsets(self, caller, place):
        self.asked.append(place)
        if place in self.not_led:
            await asyncio.sleep(10)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no leader at the moment")
        return await super().offsets(caller, place)


TWO_TOPICS = Rules((Rule("a/#", "of-a"), Rule("b/#", "of-b")))


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_a_partition_without_a_leader_refuses_only_the_filters_that_need_it(expiry_s):
    log = PartlyLed(Place("of-a", 0))

    async def scenario(house):
        wanted = Subscribe(1, (Filter("a/x", 1), Filter("b/x", 1)))
        wire, _ = house.join("c", wanted, expiry_s=expiry_s)
        await asyncio.sleep(6)
        [suback] = [packet for packet in wire.got if isinstance(packet, Suback)]
        assert suback.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR, 1)
        log.add(Place("of-b", 0), b"1", topic="b/x")
        log.not_led.clear()
        log.add(Place("of-a", 0), b"2", topic="a/x")
        await asyncio.sleep(1)
        assert payloads(wire) == [b"1"]

    run(scenario, rules=TWO_TOPICS, partitions=log)


def test_where_no_filter_can_be_granted_the_client_is_to_connect_again():
    log = PartlyLed(FIRST)

    async def scenario(house):
        wire, _ = house.join("c", subscribe())
        await asyncio.sleep(6)
        assert not any(isinstance(packet, Suback) for packet in wire.got)
        assert [packet.reason for packet in wire.got if isinstance(packet, Disconnect)] == [
            Reason.SERVER_BUSY
        ]

    run(scenario, partitions=log)


def test_what_is_followed_already_is_joined_without_a_leader_and_nothing_is_missed():
    log = PartlyLed()

    async def scenario(house):
        house.join("other", subscribe())
        await asyncio.sleep(1)
        log.not_led.add(FIRST)
        wire, _ = house.join("c", subscribe())
        await asyncio.sleep(6)
        assert Suback in map(type, wire.got)
        log.not_led.clear()
        log.add(FIRST, b"x")
        await asyncio.sleep(1)
        assert payloads(wire) == [b"x"]

    run(scenario, partitions=log)


def test_very_many_partitions_are_asked_in_turns(monkeypatch):
    monkeypatch.setattr(subscribers, "_BEGUN_AT_ONCE", 10)
    turns, asked_in = [0], []

    class Counted(Log):
        async def offsets(self, caller, place):
            asked_in.append(turns[0])
            return await super().offsets(caller, place)

    async def follow():
        loop = asyncio.get_running_loop()

        def turn():
            turns[0] += 1
            loop.call_soon(turn)

        turn()
        following = Subscribers(Counted(), None, Rules(), lambda: 0, lambda _: b"id")
        with following.joining():
            assert not await following.follow_all([Place("mqtt", index) for index in range(100)])

    asyncio.run(follow())
    assert len(asked_in) == 100
    assert max(Counter(asked_in).values()) <= 10
