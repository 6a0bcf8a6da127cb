"""What a client publishes keeps its order, and each message is answered for itself."""

import asyncio
from types import SimpleNamespace

import pytest

from millstream.doors import Acks
from millstream.doors.queues import SettlementKind
from millstream.protocol.errors import ErrorCode
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Puback, Pubcomp, Publish, Pubrec, Pubrel
from millstream.protocol.mqtt.properties import PublishProperties
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_house import run
from support.mqtt_log import Log, Messages, Queues


async def connected(house):
    wire, user = house.join("c")
    await asyncio.sleep(1)
    return wire, user


def data(*packets):
    return b"".join(encode(packet, V5) for packet in packets)


def reasons(wire, kind):
    return {packet.packet_id: packet.reason for packet in wire.got if isinstance(packet, kind)}


@pytest.mark.parametrize("retained", [0, 1, 2])
def test_messages_to_be_retained_keep_their_place_among_the_others(retained):
    """They went another way, and came behind what was published after them."""
    messages = Messages()

    async def scenario(house):
        wire, user = await connected(house)
        user.data(data(*(Publish("t", b"%d" % n, 1, n + 1, n == retained) for n in range(3))))
        await asyncio.sleep(1)
        assert [value for topic, value, _ in messages.sent if topic == "mqtt"] == [b"0", b"1", b"2"]
        kept = [value for topic, value, _ in messages.sent if topic == "__mqtt_retained"]
        assert kept == [b"%d" % retained]
        assert reasons(wire, Puback) == {1: 0, 2: 0, 3: 0}

    run(scenario, messages=messages)


@pytest.mark.parametrize("end", ["lost", "taken_over"])
def test_what_a_client_that_has_gone_sends_again_is_given_up(end):
    """Its retained copy came behind newer ones from another connection, and stayed."""
    messages = Messages()
    messages.without_leader.add("__mqtt_retained")

    async def scenario(house):
        wire, user = await connected(house)
        user.data(data(Publish("t", b"old", 1, 1, retain=True), Publish("t", b"once", retain=True)))
        await asyncio.sleep(1)
        getattr(user, end)()
        await asyncio.sleep(0.5 if end == "taken_over" else 1.5)
        assert messages.given_up == [("__mqtt_retained", b"old")]
        assert reasons(wire, Puback) == {}
        messages.without_leader.clear()
        await asyncio.sleep(1)

    run(scenario, messages=messages)


def test_a_message_that_cannot_be_retained_is_refused_alone():
    messages = Messages()
    messages.refuses["__mqtt_retained"] = ErrorCode.MESSAGE_TOO_LARGE

    async def scenario(house):
        wire, user = await connected(house)
        user.data(data(Publish("t", b"x", 1, 1), Publish("t", b"y", 1, 2, retain=True)))
        await asyncio.sleep(1)
        assert reasons(wire, Puback) == {1: 0, 2: Reason.QUOTA_EXCEEDED}

    run(scenario, messages=messages)


def test_messages_of_qos_0_all_go_one_way():
    """With some of QoS 1 they waited for more than those that came alone, which overtook them."""
    messages = Messages()

    async def scenario(house):
        _, user = await connected(house)
        user.data(
            data(Publish("t", b"first"), Publish("t", b"other", 1, 1), Publish("t", b"kept", retain=True))
        )
        user.data(data(Publish("t", b"second")))
        await asyncio.sleep(1)
        acks = {value: acks for topic, value, acks in messages.sent if topic == "mqtt"}
        least = Acks.LEADER
        assert acks == {b"first": least, b"kept": least, b"second": least, b"other": Acks.ALL}

    run(scenario, messages=messages)


def test_a_message_of_qos_2_is_refused_alone():
    """All that came with it were refused for the same reason."""

    async def scenario(house):
        wire, user = await connected(house)
        user.data(data(Publish("t", b"x", 2, 1), Publish("$SYS/x", b"y", 2, 2), Publish("t", b"z", 2, 3)))
        await asyncio.sleep(1)
        assert reasons(wire, Pubrec) == {1: 0, 2: Reason.NOT_AUTHORIZED, 3: 0}
        assert house.line.coordinator.sent() == ["x", "z"]

    run(scenario)


def test_a_queue_is_made_for_a_message_of_qos_2():
    """The connection was ended with "busy", as often as the message was sent."""

    async def scenario(house):
        metadata, made = house.door.shared.doors.metadata, {}

        async def create_topics(_caller, topics):
            made.update((topic.name, house.topic) for topic in topics)
            return [SimpleNamespace(error=None)]

        metadata.create_topics = create_topics
        metadata.image.topic = made.get
        wire, user = await connected(house)
        user.data(data(Publish("$queue/jobs", b"x", 2, 1)))
        await asyncio.sleep(1)
        assert reasons(wire, Pubrec) == {1: 0}
        assert house.line.coordinator.sent("jobs") == ["x"]

    run(scenario)


def settlement(qos, packet_id, message_id="jobs:0:7"):
    properties = PublishProperties(user_properties=(("message-id", message_id), ("group-id", "g")))
    return Publish("$queue/jobs/$ack", b"", qos, packet_id, properties=properties)


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_a_message_is_settled_with_either_qos(qos, answer):
    """With QoS 2 the word for it became a message of the queue."""
    queues = Queues(Log())

    async def scenario(house):
        wire, user = await connected(house)
        user.data(data(settlement(qos, 1)))
        await asyncio.sleep(1)
        assert reasons(wire, answer) == {1: 0}
        assert [(offset, kind) for *_, offset, kind in queues.settled] == [(7, SettlementKind.ACCEPT)]
        assert house.line.coordinator.sent("jobs") == []
        if qos == 2:
            user.data(data(Pubrel(1)))
            await asyncio.sleep(1)
            assert reasons(wire, Pubcomp) == {1: 0}

    run(scenario, queues=queues)


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
@pytest.mark.parametrize("message_id", ["jobs:0:" + "9" * 30, "jobs:9999999999:1", "jobs:0", "other:0:7"])
def test_a_settlement_of_no_message_is_refused(qos, answer, message_id):
    async def scenario(house):
        wire, user = await connected(house)
        user.data(data(settlement(qos, 1, message_id)))
        await asyncio.sleep(1)
        assert reasons(wire, answer) == {1: Reason.IMPLEMENTATION_SPECIFIC_ERROR}

    run(scenario, queues=Queues(Log()))


def test_of_two_connections_that_open_one_session_at_once_one_is_left():
    """The first was never told: both went on, and were sent the same messages."""

    async def scenario(house):
        first, _ = house.join("c")
        second, _ = house.join("c")
        await asyncio.sleep(1)
        assert [wire.got[0].reason for wire in (first, second)] == [Reason.SERVER_UNAVAILABLE, 0]
        assert sum(client.is_open for client in house.door._clients) == 1

    run(scenario)
