"""Our own requests about queues, of clients that go away."""

import struct

import pytest

from millstream.client import ClientError, QueueConsumer
from millstream.protocol.api import QUEUE_CALL
from millstream.protocol.queue_call import TakeMessages, encode_request
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, frame, produce
from support.waiting import wait_for

_HEAD = struct.Struct(">hhih")


def waiting(node: InProcessNode) -> int:
    return sum(len(queue._waiters) for queue in node.broker.services.shares)


def test_a_consumer_that_is_gone_while_it_waits_gets_nothing() -> None:
    """What came within a minute was locked for it, and counted as delivered."""
    with node_on(SimulatedDisk()) as node, RawClient(node.listen) as writer:
        topic = create_topic(writer, "t")
        taker = RawClient(node.listen)
        take = TakeMessages("g", "gone", topic, 1, max_wait_ms=60_000)
        taker.send_bytes(frame(_HEAD.pack(QUEUE_CALL, 0, 1, -1) + encode_request(take)))
        wait_for(lambda: waiting(node), lambda count: count == 1, "the consumer waits")
        before = len(node.broker.server._connections)
        taker.reset()
        wait_for(lambda: len(node.broker.server._connections), lambda count: count < before, "it is gone")
        produce(writer, topic, batch_of(b"work"))
        with QueueConsumer(topic, "g", node.listen) as queue:
            [message] = queue.receive(1, 60)
            assert message.delivery_count == 1


def test_a_members_name_is_short() -> None:
    """Each lock keeps it."""
    with node_on(SimulatedDisk()) as node, RawClient(node.listen) as client:
        topic = create_topic(client, "t")
        produce(client, topic, batch_of(b"work"))
        with (
            QueueConsumer(topic, "g", node.listen, member="m" * 256) as queue,
            pytest.raises(ClientError, match="1 to 255 characters"),
        ):
            queue.receive(1, 60)
