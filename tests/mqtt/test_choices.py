"""What settings choose: a copy for each filter, PUBACK that says 0x10, and clients that are sent elsewhere."""

import pytest

from millstream.protocol.mqtt.packets import (
    Connack,
    Connect,
    Filter,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
)
from millstream.protocol.mqtt.properties import SubscribeProperties
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_client import RawMqtt

DOOR = ("--mqtt", "127.0.0.1:0")
SETTINGS = {"mqtt.tell_no_subscribers": "true", "mqtt.overlapping_filters": "each", "mqtt.max_inflight": "1"}


@pytest.fixture
def choosing(start_node):
    return start_node(*DOOR, settings=SETTINGS)


def test_puback_says_that_nobody_is_subscribed_where_that_is_certain(choosing):
    with RawMqtt(choosing) as writer, RawMqtt(choosing) as reader, RawMqtt(choosing) as sleeper:
        writer.connect("writer")

        def told(topic, **fields):
            writer.send(Publish(topic, b"x", 1, 5, **fields))
            return writer.expect(Puback).reason

        assert told("a/b") == told("a/c", retain=True) == Reason.NO_MATCHING_SUBSCRIBERS
        reader.connect("reader")
        reader.subscribe("a/+")
        assert (told("a/b"), told("a")) == (0, Reason.NO_MATCHING_SUBSCRIBERS)
        reader.close()
        sleeper.connect("sleeper", clean=False, expiry_s=600)
        sleeper.subscribe("a/b")
        sleeper.close()
        assert told("a/b") == 0, "a session that is away"
        with RawMqtt(choosing) as member:
            member.connect("member")
            member.subscribe("$share/g/shared/#")
            assert told("shared") == 0
        assert told("shared") == 0, "a shared subscription gets it when there is a member again"
        assert told("$queue/jobs") == 0
        with RawMqtt(choosing, 4) as plain:
            plain.connect("plain")
            plain.publish("nobody", b"x", 1)


@pytest.mark.parametrize("lost", ["nothing", "the client", "the node"])
def test_each_filter_has_its_copy_of_qos_2_once_whoever_is_lost(choosing, lost):
    def connected() -> RawMqtt:
        reader = RawMqtt(choosing)
        reader.connect("reader", clean=False, expiry_s=600)
        return reader

    reader = connected()
    for number, text in enumerate(("o/+", "o/#"), 1):
        reader.send(Subscribe(1, (Filter(text, 2),), SubscribeProperties(subscription_identifiers=(number,))))
        reader.expect(Suback)
    with RawMqtt(choosing) as writer:
        writer.connect("writer")
        for payload in (b"first", b"last"):
            writer.publish("o/a", payload, 2)
    got = []
    while len(got) < 4:
        heard = reader.expect(Publish)
        assert not heard.dup
        got.append((heard.payload, *heard.properties.subscription_identifiers))
        reader.send(Pubrec(heard.packet_id))
        reader.expect(Pubrel)
        if len(got) == 1 and lost != "nothing":
            # The second copy has its identifier, and waits for the window.
            if lost == "the node":
                choosing.kill()
                choosing.start()
            reader.close()
            reader = connected()
            assert reader.expect(Pubrel).packet_id == heard.packet_id
            reader.send(Pubcomp(heard.packet_id))
            again = reader.expect(Publish)
            assert again.dup, "whether it was sent before is not known"
            got.append((again.payload, *again.properties.subscription_identifiers))
            reader.send(Pubrec(again.packet_id))
            reader.expect(Pubrel)
            heard = again
        reader.send(Pubcomp(heard.packet_id))
    assert [payload for payload, _ in got] == [b"first", b"first", b"last", b"last"]
    assert [sorted(number for _, number in got[at : at + 2]) for at in (0, 2)] == [[1, 2], [1, 2]]
    assert reader.hears_nothing()
    reader.close()


@pytest.mark.parametrize(("version", "reason"), [(5, Reason.SERVER_MOVED), (4, 3)])
def test_all_clients_are_sent_elsewhere(start_node, version, reason):
    node = start_node(*DOOR, settings={"mqtt.moved_to": "there.example:1883"})
    with RawMqtt(node, version) as client:
        client.send(Connect("c", version))
        heard = client.expect(Connack)
        assert heard.reason == reason
        assert heard.properties.server_reference == ("there.example:1883" if version == 5 else None)
        assert client.hear() is None
