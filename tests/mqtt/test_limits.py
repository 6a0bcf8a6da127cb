"""What is beyond a limit is answered with its reason; a client of 3.1.1 hears that it failed."""

import pytest

from millstream.protocol.mqtt.packets import Connack, Connect, Disconnect, Filter, Publish, Suback, Subscribe
from millstream.protocol.mqtt.properties import ConnectProperties
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_client import RawMqtt
from support.node import NodeProcess

_SESSIONS_AT_MOST = 16
SETTINGS = {
    "mqtt.listen": "127.0.0.1:0",
    "mqtt.max_subscriptions": "2",
    "mqtt.max_sessions": "1",
    "mqtt.max_packet_size": "1000",
}


@pytest.fixture
def narrow(start_node) -> NodeProcess:
    return start_node(settings=SETTINGS)


@pytest.mark.parametrize(("version", "reason"), [(5, Reason.QUOTA_EXCEEDED), (4, 0x80)])
def test_a_filter_too_many(narrow, version, reason):
    with RawMqtt(narrow, version) as client:
        client.connect("many")
        client.subscribe("a", "b")
        client.send(Subscribe(2, (Filter("b", 1), Filter("c", 1))))
        assert client.expect(Suback).reasons == (1, reason), "one that it has already may change"


@pytest.mark.parametrize(("version", "reason"), [(5, Reason.QUOTA_EXCEEDED), (4, 3)])
def test_a_session_too_many(narrow, version, reason):
    """One in each of the 16 partitions that sessions are kept in."""
    heard = []
    for number in range(_SESSIONS_AT_MOST + 1):
        with RawMqtt(narrow, version) as client:
            properties = ConnectProperties(session_expiry_s=600 if version == 5 else None)
            client.send(Connect(f"client-{number}", version, False, properties=properties))
            heard.append(client.expect(Connack).reason)
    assert set(heard) == {0, reason}


def test_a_packet_too_large(narrow):
    with RawMqtt(narrow) as client, RawMqtt(narrow, 4) as old:
        assert client.connect("large").properties.maximum_packet_size == 1000
        client.send(Publish("a", b"x" * 2_000, 1, 1))
        assert client.expect(Disconnect).reason == Reason.PACKET_TOO_LARGE
        old.connect("old")
        old.send(Publish("a", b"x" * 2_000, 1, 1))
        assert old.hear() is None
