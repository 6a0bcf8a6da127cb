"""How a new replica comes to what its leader has."""

import asyncio
from collections.abc import Iterator

import pytest

from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment
from support.logs import read_values
from support.raw_client import RawClient, batch_of, milliseconds, produce_fields
from support.trio import Trio, until


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    trio = Trio()
    try:
        yield trio
    finally:
        trio.close()


def led_by(trio: Trio, topic: str, **configs: str) -> int:
    assert trio.create(1, topic, 2, **configs) == 0
    until(lambda: trio.knows(1, topic))
    leader = trio.nodes[1].broker.metadata.image.topics[topic].partitions[0].leader
    until(lambda: trio.nodes[leader].broker.partitions.get(topic, 0) is not None)
    return leader


@pytest.mark.parametrize(
    "configs", [{}, {"flush_messages": "1000", "flush_ms": "100"}], ids=["durable", "flushed later"]
)
def test_a_new_replica_of_a_log_that_begins_within_a_batch(trio: Trio, configs: dict[str, str]) -> None:
    topic = f"t{len(configs)}"
    leader = led_by(trio, topic, **configs)
    with RawClient(trio.nodes[leader].listen) as client:
        for values in ((b"a", b"b", b"c"), (b"d",)):
            client.call("produce", 9, **produce_fields(topic, batch_of(*values), acks=-1))
        wanted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
        patience = milliseconds(60_000)
        (deleted,) = client.call("delete_records", 2, topics=wanted, timeout=patience).topics[0].partitions
        assert deleted.low_watermark == 1
    broker = trio.nodes[leader].broker
    all_three = AlterReassignments((Reassignment(topic, 0, (1, 2, 3)),))
    (outcome,) = asyncio.run_coroutine_threadsafe(broker.metadata.submit(all_three), broker.loop).result(90)
    assert outcome.error is None
    until(lambda: set(broker.metadata.image.topics[topic].partitions[0].isr) == {1, 2, 3})
    for node in trio.nodes.values():
        copy = node.broker.partitions.get(topic, 0)
        assert copy is not None
        until(lambda c=copy: c.high_watermark == 4 and c.log.log_start_offset == 1)
        assert read_values(copy.log) == [b"b", b"c", b"d"]
