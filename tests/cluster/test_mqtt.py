"""MQTT in a cluster: a client may be at any node, and come back at any other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.protocol.mqtt.packets import Disconnect, Publish, Pubrel
from millstream.protocol.mqtt.reasons import Reason
from support.cluster import ClusterProcesses
from support.mqtt_client import RawMqtt


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    settings = {"mqtt.listen": "127.0.0.1:0", "replication.default_replication_factor": "3"}
    cluster = ClusterProcesses(tmp_path, 3, settings=settings).start()
    try:
        yield cluster
    finally:
        cluster.close()


def next_message(client: RawMqtt) -> Publish:
    """Behind what is owed from before."""
    while isinstance(heard := client.hear(), Pubrel):
        pass
    assert isinstance(heard, Publish)
    return heard


def test_a_session_goes_on_at_another_node(cluster):
    nodes = cluster.nodes
    with RawMqtt(nodes[1]) as reader, RawMqtt(nodes[2]) as writer, RawMqtt(nodes[3]) as again:
        reader.connect("reader", clean=False, expiry_s=600)
        reader.subscribe("a/#", qos=1)
        writer.connect("writer")
        writer.publish("a/b", b"one", 2)
        assert reader.receive().payload == b"one"
        assert again.connect("reader", clean=False, expiry_s=600).session_present
        assert reader.expect(Disconnect).reason == Reason.SESSION_TAKEN_OVER
        writer.publish("a/b", b"two", 1, retain=True)
        heard = [next_message(again).payload]
        while heard[-1] != b"two":
            # How far the session was may not have been written down: QoS 1 may come again.
            heard.append(next_message(again).payload)
        assert set(heard) <= {b"one", b"two"}
    with RawMqtt(nodes[1]) as late:
        late.connect("late")
        late.subscribe("a/+", qos=0)
        message = late.receive()
        assert (message.payload, message.retain) == (b"two", True)


def test_a_session_and_a_message_of_qos_2_survive_the_node_of_the_client(cluster):
    nodes = cluster.nodes
    with RawMqtt(nodes[1]) as reader:
        reader.connect("reader", clean=False, expiry_s=600)
        reader.subscribe("a/#")
    with RawMqtt(nodes[1]) as writer:
        writer.connect("writer", clean=False, expiry_s=600)
        writer.publish("a/b", b"one", 2, packet_id=1)
    nodes[1].kill()
    with RawMqtt(nodes[2]) as writer:
        assert writer.connect("writer", clean=False, expiry_s=600).session_present
        writer.publish("a/b", b"two", 2, packet_id=1)
    with RawMqtt(nodes[3]) as reader:
        assert reader.connect("reader", clean=False, expiry_s=600).session_present
        assert [reader.receive().payload for _ in range(2)] == [b"one", b"two"]
