"""Bad and greedy clients: the node refuses or bounds what they do, and serves the others as before."""

import random
import resource
import socket

import pytest

from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import (
    Connect,
    Disconnect,
    Filter,
    Pingreq,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Will,
)
from millstream.protocol.mqtt.properties import PublishProperties
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_client import RawMqtt, mqtt_address
from support.node import NodeProcess

_UNSENT = 64 << 10


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A node that disconnects subscribers which do not read."""
    settings = {
        "mqtt.listen": "127.0.0.1:0",
        "mqtt.slow_subscribers": "disconnect",
        "mqtt.max_unsent_bytes": str(_UNSENT),
    }
    node = NodeProcess(tmp_path_factory.mktemp("hostile"), settings=settings).start()
    yield node
    node.stop()
    node.close()


def _serves(node: NodeProcess) -> None:
    """Somebody else is served."""
    with RawMqtt(node) as other:
        other.connect("somebody-else")
        other.subscribe("alive", qos=1)
        other.publish("alive", b"yes", 1)
        assert other.receive().payload == b"yes"


def test_packets_that_were_damaged_on_the_way(strict):
    """Bits flipped, bytes cut out and put in, in every kind of packet: each connection ends or goes on."""
    draw = random.Random(4711)
    properties = PublishProperties(user_properties=(("a", "b"),), content_type="c", topic_alias=3)
    packets = (
        Connect("damaged", 5, True, 10, "user", b"secret", Will("w", b"gone", 1)),
        Publish("a/b", b"payload", 2, 7, properties=properties),
        Subscribe(8, (Filter("a/+", 1), Filter("#", 2))),
        Unsubscribe(9, ("a/+",)),
        Pubrel(7),
        Pingreq(),
        Disconnect(4),
    )
    good = b"".join(encode(each, 5) for each in packets)
    for _ in range(150):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            match draw.randrange(3):
                case 0:
                    data[at] ^= 1 << draw.randrange(8)
                case 1:
                    del data[at : at + draw.randint(1, 5)]
                case _:
                    data[at:at] = draw.randbytes(draw.randint(1, 5))
        with socket.create_connection(mqtt_address(strict), timeout=60) as sender:
            sender.sendall(data)
            sender.shutdown(socket.SHUT_WR)
            while sender.recv(65_536):
                pass
    _serves(strict)
    assert not strict.log_entries("Unhandled exception")


def test_filters_that_all_match_are_one_copy(strict):
    """A thousand filters of 100 levels, each a mix of names and wildcards, and a topic that all of them match."""
    draw, levels = random.Random(1), 100
    topic = "/".join("a" * levels)
    filters = {"/".join(draw.choice("a+") for _ in range(levels)) for _ in range(1_000)}
    with RawMqtt(strict) as greedy:
        greedy.connect("greedy")
        greedy.subscribe(*filters, qos=1)
        greedy.publish(topic, b"once", 1)
        greedy.publish(topic, b"twice", 1)
        assert [greedy.receive().payload for _ in range(2)] == [b"once", b"twice"]


def test_the_longest_topic_is_a_topic(strict):
    topic = "t" * 65_535
    with RawMqtt(strict) as client:
        client.connect("long-topic")
        client.subscribe(topic, qos=1)
        client.publish(topic, b"x", 1)
        assert client.receive().topic == topic


def test_a_subscriber_that_does_not_read_is_disconnected(strict):
    with RawMqtt(strict) as slow, RawMqtt(strict) as writer:
        slow.connect("slow")
        slow.subscribe("flood", qos=0)
        writer.connect("flooder")
        # More than the system's own buffers hold.
        for _ in range(40):
            writer.send(*[Publish("flood", b"x" * 10_000)] * 100)
        writer.publish("flood-is-over", b"", 1)
        heard, count = slow.hear(), 0
        while isinstance(heard, Publish):
            heard, count = slow.hear(), count + 1
        assert heard is None or heard.reason == Reason.QUOTA_EXCEEDED
        assert count < 4_000
    _serves(strict)


def test_a_storm_of_the_same_client(strict):
    """A hundred connections with one client id: each takes the session over, and one has it at the end."""
    storm = [RawMqtt(strict) for _ in range(200)]
    for number, each in enumerate(storm):
        each.send(Connect("the-same" if number % 2 else f"storm-{number}", 5, True, 0))
    with RawMqtt(strict) as last:
        last.connect("the-same")
        last.subscribe("storm", qos=1)
        last.publish("storm", b"calm", 1)
        assert last.receive().payload == b"calm"
    for each in storm:
        each.close()
    _serves(strict)


@pytest.mark.long
def test_ten_thousand_idle_connections(strict):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip("the system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle = []
    try:
        for number in range(10_000):
            idle.append(RawMqtt(strict))
            idle[-1].send(Connect(f"idle-{number}", 5, True, 0))
        for each in idle:
            assert not each.hear().reason
        _serves(strict)
    finally:
        for each in idle:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_is_sent_away_hears_why_though_it_still_sends(node):
    """Bytes that were never read would reset the connection, and take the answer with them."""
    with RawMqtt(node) as client:
        client.connect("talker")
        client.send(*(Publish("a", b"x" * 1_000, 2, number) for number in range(1, 3_000)))
        while isinstance(heard := client.hear(), Pubrec):
            client.send(Pubrel(heard.packet_id))
        assert isinstance(heard, Disconnect)
        assert heard.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
        assert client.hear() is None
