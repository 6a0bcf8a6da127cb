"""MQTT in a cluster: a client may be at any node, and come back at any other."""

import threading
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from millstream.protocol.mqtt.packets import Disconnect, Publish, Pubrel
from millstream.protocol.mqtt.reasons import Reason
from millstream.runtime.ports import ReservedPorts
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


class Following:
    """A consumer with paho-mqtt of MQTT 5 that goes where a server sends it."""

    def __init__(self, address: str, queue: str) -> None:
        self.visited = [address]
        self.heard: list[bytes] = []
        self.has_heard = threading.Event()
        self._queue = queue

    def consume(self) -> None:
        while not self.has_heard.is_set():
            host, _, port = self.visited[-1].rpartition(":")
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, "worker", protocol=paho.MQTTv5)
            client.on_connect = lambda client, *_: client.subscribe(self._queue, 1)
            client.on_message = self._message
            client.on_disconnect = self._sent_away
            client.connect(host, int(port))
            client.loop_forever(retry_first_connection=False)

    def _message(self, client: paho.Client, _user: object, message: paho.MQTTMessage) -> None:
        self.heard.append(message.payload)
        self.has_heard.set()
        client.disconnect()

    def _sent_away(self, client, _user, _flags, reason, properties) -> None:
        if not self.has_heard.is_set():
            assert reason.value == Reason.USE_ANOTHER_SERVER
            self.visited.append(properties.ServerReference)
            client.disconnect()


def test_a_consumer_of_a_direct_queue_is_sent_to_its_leader_and_goes_there(tmp_path):
    with ReservedPorts(3) as reserved:
        addresses = dict(enumerate(reserved.addresses, 1))
        settings = {
            "mqtt.direct_queues": "jobs",
            "mqtt.servers": ",".join(f"{number}={address}" for number, address in addresses.items()),
        }
        cluster = ClusterProcesses(tmp_path, 3, settings=settings)
        for number, node in cluster.nodes.items():
            node.arguments += ["--mqtt", addresses[number]]
        try:
            cluster.start()
            for queue in ("jobs", "others"):
                cluster.create_topic(queue, 1)
            (leader,) = cluster.topics(1)["jobs"]
            elsewhere = next(number for number in addresses if number != leader)
            with RawMqtt(cluster.nodes[elsewhere]) as writer:
                writer.connect("writer")
                for queue in ("jobs", "others"):
                    writer.publish(f"$queue/{queue}", queue.encode())
            follower = Following(addresses[elsewhere], "$queue/jobs")
            follower.consume()
            assert follower.visited == [addresses[elsewhere], addresses[leader]]
            assert follower.heard == [b"jobs"]
            # Queues that are not named are served through any node.
            stayer = Following(addresses[cluster.others(*cluster.topics(1)["others"])[0]], "$queue/others")
            stayer.consume()
            assert (len(stayer.visited), stayer.heard) == (1, [b"others"])
        finally:
            cluster.close()
