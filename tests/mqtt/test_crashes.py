"""A node that is killed in the middle: sessions, exchanges and retained messages go on as if it had not been."""

import pytest

from millstream.protocol.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from support.mqtt_client import RawMqtt
from support.node import NodeProcess

DOOR = ("--mqtt", "127.0.0.1:0")


@pytest.fixture
def crashing(start_node) -> NodeProcess:
    return start_node(*DOOR)


def crash(node: NodeProcess) -> None:
    node.kill()
    node.start()


def test_what_was_acknowledged_is_there_and_a_session_goes_on(crashing):
    with RawMqtt(crashing, 4) as reader, RawMqtt(crashing) as writer:
        reader.connect("reader", clean=False)
        reader.subscribe("a/#")
        writer.connect("writer")
        writer.publish("a/kept", b"retained", 2, retain=True)
        assert reader.receive().payload == b"retained"
        reader.close()
        for number in range(20):
            writer.publish("a/b", b"%d" % number, 1)
        crash(crashing)
    with RawMqtt(crashing, 4) as reader, RawMqtt(crashing) as other:
        assert reader.connect("reader", clean=False).session_present
        assert [int(reader.receive().payload) for _ in range(20)] == list(range(20))
        other.connect("other")
        other.subscribe("a/kept")
        assert other.receive().retain


@pytest.mark.parametrize("step", ["PUBLISH", "PUBREC", "PUBREL", "PUBCOMP"])
def test_a_message_of_qos_2_that_a_client_sends_is_there_once(crashing, step):
    with RawMqtt(crashing) as reader:
        reader.connect("reader", clean=False, expiry_s=600)
        reader.subscribe("once")
    with RawMqtt(crashing) as writer:
        writer.connect("writer", clean=False, expiry_s=600)
        writer.send(Publish("once", b"x", 2, 7))
        if step != "PUBLISH":
            writer.expect(Pubrec)
        if step in ("PUBREL", "PUBCOMP"):
            writer.send(Pubrel(7))
        if step == "PUBCOMP":
            writer.expect(Pubcomp)
        crash(crashing)
    with RawMqtt(crashing) as writer:
        assert writer.connect("writer", clean=False, expiry_s=600).session_present
        # A client goes on with what it has no answer to.
        if step == "PUBLISH":
            writer.send(Publish("once", b"x", 2, 7, dup=True))
            writer.expect(Pubrec)
        if step != "PUBCOMP":
            writer.send(Pubrel(7))
            writer.expect(Pubcomp)
        writer.publish("once", b"last", 2, packet_id=8)
    with RawMqtt(crashing) as reader:
        assert reader.connect("reader", clean=False, expiry_s=600).session_present
        assert [reader.receive().payload for _ in range(2)] == [b"x", b"last"]


@pytest.mark.parametrize("step", ["PUBLISH", "PUBREC", "PUBREL", "PUBCOMP"])
def test_a_message_of_qos_2_that_a_client_gets_comes_once(crashing, step):
    with RawMqtt(crashing) as reader, RawMqtt(crashing) as writer:
        reader.connect("reader", clean=False, expiry_s=600)
        reader.subscribe("once")
        writer.connect("writer")
        writer.publish("once", b"x", 2)
        message = reader.expect(Publish)
        taken = [message.payload]
        if step != "PUBLISH":
            reader.send(Pubrec(message.packet_id))
        if step in ("PUBREL", "PUBCOMP"):
            reader.expect(Pubrel)
        if step == "PUBCOMP":
            reader.send(Pubcomp(message.packet_id))
        crash(crashing)
    with RawMqtt(crashing) as reader, RawMqtt(crashing) as writer:
        assert reader.connect("reader", clean=False, expiry_s=600).session_present
        writer.connect("writer")
        writer.publish("once", b"last", 1)
        # What a client does that keeps its side of the state.
        while True:
            heard = reader.hear()
            if isinstance(heard, Publish) and heard.qos == 2:
                assert heard.packet_id == message.packet_id
                assert heard.dup
                assert step in ("PUBLISH", "PUBREC"), "it was released before"
                reader.send(Pubrec(heard.packet_id))
            elif isinstance(heard, Pubrel):
                assert heard.packet_id == message.packet_id
                reader.send(Pubcomp(heard.packet_id))
            else:
                assert heard.payload == b"last"
                reader.send(Puback(heard.packet_id))
                break
    assert taken == [b"x"]


def test_a_will_goes_out_once_when_the_node_of_its_client_is_killed(crashing):
    with RawMqtt(crashing) as watcher:
        watcher.connect("watcher", clean=False, expiry_s=600)
        watcher.subscribe("gone")
    with RawMqtt(crashing) as leaving:
        leaving.connect("leaving", will=Will("gone", b"bye", 1))
        crash(crashing)
    with RawMqtt(crashing) as watcher:
        watcher.connect("watcher", clean=False, expiry_s=600)
        assert watcher.receive().payload == b"bye"
        with RawMqtt(crashing) as writer:
            writer.connect("writer")
            writer.publish("gone", b"last", 1)
        assert watcher.receive().payload == b"last"
