"""Requests that wait for a disk that takes its time: a node whose fsyncs are held up until the test lets them go."""

from collections.abc import Iterator

import pytest

from millstream.protocol.compression import Compression
from millstream.testing.disk import SimulatedDisk
from support.held_disk import HeldDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    milliseconds,
    produce_fields,
)
from support.waiting import wait_for

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, REQUEST_TIMED_OUT = 1, 3, 7


@pytest.fixture
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk()) as node:
        yield node


@pytest.fixture
def client(node: InProcessNode) -> Iterator[RawClient]:
    with RawClient(node.listen) as client:
        yield client


@pytest.fixture
def topic(client: RawClient) -> str:
    return create_topic(client, "t")


@pytest.fixture
def held(node: InProcessNode, topic: str) -> Iterator[HeldDisk]:
    disk = HeldDisk(node)
    yield disk
    disk.let_go()


def high_watermark(client: RawClient, topic: str, offset: int) -> tuple[int, int, int]:
    (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, offset)))
    return fetched.error_code, fetched.high_watermark, len(fetched.records or b"")


def test_records_are_acknowledged_and_shown_only_when_they_are_on_disk(
    client: RawClient, node: InProcessNode, topic: str, held: HeldDisk
) -> None:
    client.send("produce", 9, **produce_fields(topic, batch_of(b"a", b"b")))
    client.send("metadata", 12, topics=[])
    with RawClient(node.listen) as reader:
        wait_for(lambda: node.broker.delayed.produces, lambda count: count == 1, "the produce waits")
        assert high_watermark(reader, topic, 0) == (0, 0, 0)
        assert high_watermark(reader, topic, 2) == (0, 0, 0), (
            "written but not shown is no reason to start over"
        )
        assert high_watermark(reader, topic, 3) == (OFFSET_OUT_OF_RANGE, 0, 0)
        reader.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=300_000))
        assert not client.has_reply(within_s=0.1)
        assert not reader.has_reply()
        held.let_go()
        assert fetched_partitions(reader.receive())[0].high_watermark == 2
    assert client.receive().responses[0].partition_responses[0].base_offset == 0
    assert client.receive().brokers
    assert node.broker.delayed.produces == 0


def test_a_produce_is_told_when_its_time_is_over(client: RawClient, topic: str, held: HeldDisk) -> None:
    fields = {**produce_fields(topic, batch_of(b"a")), "timeout": milliseconds(50)}
    (answer,) = client.call("produce", 9, **fields).responses
    assert answer.partition_responses[0].error_code == REQUEST_TIMED_OUT
    held.let_go()
    wait_for(
        lambda: high_watermark(client, topic, 0)[1], lambda end: end == 1, "the record is there all the same"
    )


def test_a_produce_whose_topic_is_deleted_meanwhile_is_told(
    client: RawClient, node: InProcessNode, topic: str, held: HeldDisk
) -> None:
    client.send("produce", 9, **produce_fields(topic, batch_of(b"a")))
    wait_for(lambda: node.broker.delayed.produces, lambda count: count == 1, "the produce waits")
    with RawClient(node.listen) as other:
        assert other.call("delete_topics", 6, topics=[{"name": topic}]).responses[0].error_code == 0
    (answer,) = client.receive().responses
    assert answer.partition_responses[0].error_code == UNKNOWN_TOPIC


def test_produces_of_clients_that_left_are_finished_without_them(
    client: RawClient, node: InProcessNode, topic: str, held: HeldDisk
) -> None:
    for _ in range(5):
        with RawClient(node.listen) as leaving:
            leaving.send("produce", 9, **produce_fields(topic, batch_of(b"a")))
            leaving.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=60_000))
            wait_for(lambda: node.broker.delayed.fetches, lambda count: count == 1, "the fetch waits")
        wait_for(lambda: node.broker.delayed.fetches, lambda count: count == 0, "the fetch is forgotten")
    held.let_go()
    wait_for(lambda: node.broker.delayed.produces, lambda count: count == 0, "nothing is left")
    assert high_watermark(client, topic, 0)[1] == 5


def test_many_producers_share_one_sync(
    client: RawClient, node: InProcessNode, topic: str, held: HeldDisk
) -> None:
    flushes = node.broker.metrics.log_flush_duration
    before = sum(flushes.counts)
    clients = [RawClient(node.listen) for _ in range(20)]
    try:
        for each in clients:
            each.send("produce", 9, **produce_fields(topic, batch_of(b"a")))
        wait_for(lambda: node.broker.delayed.produces, lambda count: count == 20, "all wait")
        held.let_go()
        offsets = {each.receive().responses[0].partition_responses[0].base_offset for each in clients}
        assert offsets == set(range(20))
    finally:
        for each in clients:
            each.close()
    assert sum(flushes.counts) - before <= 3


def test_a_batch_is_unpacked_for_a_look_up_by_time_in_a_thread(
    client: RawClient, node: InProcessNode, topic: str
) -> None:
    """While all threads are busy the look-up waits, and the loop answers everybody else."""
    packed = batch_of(b"a", b"b", b"c", timestamp_ms=1_000_000, codec=Compression.ZSTD)
    assert client.call("produce", 9, **produce_fields(topic, packed)).responses
    held = HeldDisk(node)
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": 1_000_001}]}]
    client.send("list_offsets", 7, topics=wanted)
    with RawClient(node.listen) as other:
        assert other.call("metadata", 12, topics=[{"name": topic}]).topics[0].error_code == 0
        assert not client.has_reply(within_s=0.1)
    held.let_go()
    assert client.receive().topics[0].partitions[0].offset == 1
