"""A session that is away for long costs no memory for its messages: they are in the log, and wait there."""

from collections.abc import Iterable, Iterator

import pytest

from millstream.protocol.mqtt.packets import Puback, Publish
from support.metrics import metric
from support.mqtt_client import RawMqtt
from support.node import NodeProcess

MB = 1 << 20
PAYLOAD_BYTES = 512
AT_ONCE = 500
# A node that kept them would need this much for the payloads alone, and with its objects about twice as much.
QUEUED = 200_000
QUEUED_MB = QUEUED * PAYLOAD_BYTES / MB
ALLOWED_MB = QUEUED_MB / 3


@pytest.fixture
def node(tmp_path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path, settings={"mqtt.listen": "127.0.0.1:0"}).start()
    yield node
    node.stop()
    node.close()


def _memory_mb(node: NodeProcess) -> float:
    return metric(node, "process_resident_memory_bytes") / MB


def _payload(number: int) -> bytes:
    return b"%d" % number + b"." * (PAYLOAD_BYTES - len(str(number)))


def _publish(writer: RawMqtt, numbers: range) -> None:
    for first in numbers[::AT_ONCE]:
        some = range(first, min(first + AT_ONCE, numbers.stop))
        packets = [Publish("away/1", _payload(each), 1, packet_id) for packet_id, each in enumerate(some, 1)]
        writer.send(*packets)
        for packet in packets:
            assert writer.expect(Puback).packet_id == packet.packet_id


def _receive(reader: RawMqtt, numbers: Iterable[int]) -> None:
    for number in numbers:
        message = reader.expect(Publish)
        assert message.payload == _payload(number)
        reader.send(Puback(message.packet_id))


@pytest.mark.long
def test_messages_for_a_session_that_is_away_cost_no_memory_and_all_come_when_it_is_back(node):
    with RawMqtt(node, 4) as reader, RawMqtt(node, 4) as writer:
        reader.connect("away", clean=False)
        reader.subscribe("away/#", qos=1)
        writer.connect("writer")
        # What any load needs once is there before the node's memory is looked at.
        _publish(writer, range(10_000))
        _receive(reader, range(10_000))
        reader.close()
        before = _memory_mb(node)
        queued = range(10_000, 10_000 + QUEUED)
        _publish(writer, queued)
        assert _memory_mb(node) < before + ALLOWED_MB
        with RawMqtt(node, 4) as again:
            assert again.connect("away", clean=False).session_present
            for first in queued[::20_000]:
                _receive(again, range(first, first + 20_000))
                assert _memory_mb(node) < before + ALLOWED_MB
            assert again.hears_nothing()
