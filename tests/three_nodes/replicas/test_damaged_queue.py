"""A queue whose leader meets damage in its log: it is repaired from another replica, and its messages come."""

import asyncio

from millstream.doors.caller import NODE
from millstream.doors.partitions import Place
from millstream.protocol.errors import KafkaError
from support.raw_client import RawClient, batch_of, produce_fields
from support.three_nodes import ThreeNodes, until


def test_a_message_that_rots_is_delivered_from_a_sound_copy(three: ThreeNodes) -> None:
    assert three.create(1, "t", 3) == 0
    until(lambda: three.knows(1, "t"))
    leader = three.nodes[1].broker.metadata.image.topics["t"].partitions[0].leader
    broker = three.nodes[leader].broker

    def leads() -> bool:
        found = broker.partitions.get("t", 0)
        return found is not None and found.is_leader

    until(leads)
    with RawClient(three.nodes[leader].listen) as client:
        for value in (b"first", b"second"):
            reply = client.call("produce", 9, **produce_fields("t", batch_of(value), acks=-1))
            assert reply.responses[0].partition_responses[0].error_code == 0
    partition = broker.partitions.get("t", 0)
    assert partition is not None
    three.disks[leader].flip_bit(partition.log.segments[0].log_path, 70)

    def taken() -> int:
        queues = broker.services.node_doors.doors.queues
        work = queues.acquire(
            NODE, "g", "m", Place("t", 0), max_messages=10, max_bytes=1 << 20, max_wait_s=0.1
        )
        try:
            acquired = asyncio.run_coroutine_threadsafe(work, broker.loop).result(90)
        except KafkaError:
            return 0
        return sum(each.last_offset - each.first_offset + 1 for each in acquired.ranges)

    until(lambda: taken() == 2)
    until(lambda: broker.metrics.repaired_segments.value == 1)
