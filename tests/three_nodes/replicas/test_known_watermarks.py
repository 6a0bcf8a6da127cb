"""What a node wrote down of a log's high watermark counts for that very log, and for no other in its place."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from millstream.broker.partitions import upkeep
from millstream.broker.partitions.topic_changes import TopicChanges
from millstream.cluster.metadata.image import PartitionImage
from millstream.storage.checkpoint import HIGH_WATERMARKS_FILE, read_high_watermarks
from millstream.storage.store import PartitionSpec
from support.inprocess import InProcessNode
from support.raw_client import RawClient, batch_of, produce_fields
from support.three_nodes import ThreeNodes, until

FILE = f"/data/{HIGH_WATERMARKS_FILE}"


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreeNodes]:
    monkeypatch.setattr(upkeep, "_HIGH_WATERMARKS_MS", 100)
    nodes = ThreeNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def move(three: ThreeNodes, to: list[int]) -> None:
    partition = {"partition_index": 0, "replicas": to}
    with RawClient(three.nodes[to[0]].listen) as client:
        client.call(
            "alter_partition_reassignments",
            0,
            topics=[{"name": "t", "partitions": [partition]}],
            timeout=timedelta(seconds=60),
        )


def started_from(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch, node: int, stopped: InProcessNode
) -> list[int | None]:
    """The high watermarks with which the node takes up its partitions."""
    begun: list[int | None] = []
    serve = TopicChanges.serve

    def noted(
        it: TopicChanges, image: PartitionImage, spec: PartitionSpec, high_watermark: int | None = None
    ) -> None:
        begun.append(high_watermark)
        serve(it, image, spec, high_watermark)

    monkeypatch.setattr(TopicChanges, "serve", noted)
    three.start_again(node, stopped)
    return begun


@pytest.mark.parametrize("goes", [True, False], ids=["another log", "the same log"])
def test_a_high_watermark_is_of_one_log(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    """Of a copy that is half made the end would count as committed."""
    assert three.create(1, "t", 3) == 0
    until(lambda: all(three.nodes[each].broker.partitions.get("t", 0) is not None for each in three.nodes))
    leader = three.nodes[1].broker.metadata.image.topics["t"].partitions[0].leader
    node = next(each for each in three.nodes if each != leader)
    with RawClient(three.nodes[leader].listen) as client:
        reply = client.call("produce", 9, **produce_fields("t", batch_of(b"x"), acks=-1))
        assert reply.responses[0].partition_responses[0].error_code == 0

    def reached() -> int | None:
        partition = three.nodes[node].broker.partitions.get("t", 0)
        return None if partition is None else partition.high_watermark

    def written() -> list[int]:
        return [each.offset for each in read_high_watermarks(three.disks[node], "/data").values()]

    until(lambda: reached() == 1)
    until(lambda: 1 in written())
    old = three.disks[node].read(FILE)
    if goes:
        others = [leader, *(each for each in three.nodes if each not in (leader, node))]
        move(three, others)
        until(lambda: reached() is None)
        move(three, [*others, node])
        until(lambda: reached() == 1)
    stopped = three.stop(node)
    three.disks[node].write_atomically(FILE, old)
    assert started_from(three, monkeypatch, node, stopped) == [0 if goes else 1]


def test_what_was_committed_by_a_single_replica_stays_known_when_it_gets_others(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery counted nothing as committed, and cut everything behind damage that no other replica could repair."""
    assert three.create(1, "t", 1) == 0
    until(lambda: all(three.knows(each, "t") for each in three.nodes))
    leader = three.nodes[1].broker.metadata.image.topics["t"].partitions[0].leader
    until(lambda: three.nodes[leader].broker.partitions.get("t", 0) is not None)
    with RawClient(three.nodes[leader].listen) as client:
        reply = client.call("produce", 9, **produce_fields("t", batch_of(b"x"), acks=-1))
        assert reply.responses[0].partition_responses[0].error_code == 0
    broker = three.nodes[leader].broker
    asyncio.run_coroutine_threadsafe(broker.upkeep.checkpoint_high_watermarks(), broker.loop).result(90)
    before = three.disks[leader].read(FILE)
    other = next(each for each in three.nodes if each != leader)
    move(three, [leader, other])
    until(lambda: len(three.nodes[leader].broker.metadata.image.topics["t"].partitions[0].isr) == 2)
    stopped = three.stop(leader)
    # As if it had ended before it could write the file again.
    three.disks[leader].write_atomically(FILE, before)
    assert started_from(three, monkeypatch, leader, stopped) == [1]
