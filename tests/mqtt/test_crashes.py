"""A node or a client is killed in the middle: sessions, exchanges and retained messages go on as if it had not been."""

import os
import signal
from collections.abc import Callable

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


def killed_after(work: Callable[[], RawMqtt]) -> None:
    """Do it in a process of its own, which is then killed (-9) with all its connections."""
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            with work():
                os.write(told, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(told)
    try:
        assert os.read(heard, 1) == b"x", "the client failed"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(heard)


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


STEPS = ["PUBLISH", "PUBREC", "PUBREL", "PUBCOMP"]


@pytest.mark.parametrize("killed", ["node", "client"])
@pytest.mark.parametrize("step", STEPS)
def test_a_message_of_qos_2_that_a_client_sends_is_there_once(crashing, step, killed):
    with RawMqtt(crashing) as reader:
        reader.connect("reader", clean=False, expiry_s=600)
        reader.subscribe("once")

    def send() -> RawMqtt:
        writer = RawMqtt(crashing)
        writer.connect("writer", clean=False, expiry_s=600)
        writer.send(Publish("once", b"x", 2, 7))
        if step != "PUBLISH":
            writer.expect(Pubrec)
        if step in ("PUBREL", "PUBCOMP"):
            writer.send(Pubrel(7))
        if step == "PUBCOMP":
            writer.expect(Pubcomp)
        return writer

    if killed == "client":
        killed_after(send)
    else:
        with send():
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


@pytest.mark.parametrize("killed", ["node", "client"])
@pytest.mark.parametrize("step", STEPS)
def test_a_message_of_qos_2_that_a_client_gets_comes_once(crashing, step, killed):
    with RawMqtt(crashing) as reader, RawMqtt(crashing) as writer:
        reader.connect("reader", clean=False, expiry_s=600)
        reader.subscribe("once")
        writer.connect("writer")
        reader.close()
        writer.publish("once", b"x", 2)

    def receive() -> RawMqtt:
        reader = RawMqtt(crashing)
        reader.connect("reader", clean=False, expiry_s=600)
        message = reader.expect(Publish)
        assert (message.payload, message.packet_id, message.dup) == (b"x", 1, False)
        if step != "PUBLISH":
            reader.send(Pubrec(1))
        if step in ("PUBREL", "PUBCOMP"):
            reader.expect(Pubrel)
        if step == "PUBCOMP":
            reader.send(Pubcomp(1))
        return reader

    if killed == "client":
        killed_after(receive)
    else:
        with receive():
            crash(crashing)
    with RawMqtt(crashing) as reader, RawMqtt(crashing) as writer:
        assert reader.connect("reader", clean=False, expiry_s=600).session_present
        writer.connect("writer")
        writer.publish("once", b"last", 1)
        # What a client does that keeps its side of the state.
        while True:
            heard = reader.hear()
            if isinstance(heard, Publish) and heard.qos == 2:
                assert (heard.packet_id, heard.dup) == (1, True)
                assert step in ("PUBLISH", "PUBREC"), "it was released before"
                reader.send(Pubrec(1))
            elif isinstance(heard, Pubrel):
                assert heard.packet_id == 1
                reader.send(Pubcomp(1))
            else:
                assert heard.payload == b"last"
                reader.send(Puback(heard.packet_id))
                break


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
