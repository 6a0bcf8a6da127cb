"""How a replica comes to what its leader has, and goes on when it cannot."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from millstream.broker.replicas import following as following_module
from millstream.broker.replicas.following import Following
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment
from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import FetchedPartition
from millstream.protocol.record_batch import BatchHeader
from millstream.storage import log as log_module
from millstream.storage.log import PartitionLog
from millstream.storage.truncation import Truncation
from support.held_disk import HeldDisk
from support.logs import read_values
from support.raw_client import RawClient, batch_of, milliseconds, produce_fields
from support.three_nodes import ThreeNodes, until

REQUEST_TIMED_OUT = 7


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    three = ThreeNodes()
    try:
        yield three
    finally:
        three.close()


def led_by(three: ThreeNodes, topic: str, **configs: str) -> int:
    assert three.create(1, topic, 2, **configs) == 0
    until(lambda: three.knows(1, topic))
    leader = three.nodes[1].broker.metadata.image.topics[topic].partitions[0].leader
    until(lambda: three.nodes[leader].broker.partitions.get(topic, 0) is not None)
    return leader


def delete(three: ThreeNodes, leader: int, topic: str, offset: int, timeout_ms: int) -> tuple[int, int]:
    """The error code, and from where on all replicas have records."""
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
    with RawClient(three.nodes[leader].listen) as client:
        reply = client.call("delete_records", 2, topics=wanted, timeout=milliseconds(timeout_ms))
    (deleted,) = reply.topics[0].partitions
    return int(deleted.error_code), deleted.low_watermark


@pytest.mark.parametrize(
    "configs", [{}, {"flush_messages": "1000", "flush_ms": "100"}], ids=["durable", "flushed later"]
)
def test_a_new_replica_of_a_log_that_begins_within_a_batch(
    three: ThreeNodes, configs: dict[str, str]
) -> None:
    topic = f"t{len(configs)}"
    leader = led_by(three, topic, **configs)
    with RawClient(three.nodes[leader].listen) as client:
        for values in ((b"a", b"b", b"c"), (b"d",)):
            client.call("produce", 9, **produce_fields(topic, batch_of(*values), acks=-1))
    assert delete(three, leader, topic, 1, 60_000) == (0, 1)
    broker = three.nodes[leader].broker
    all_three = AlterReassignments((Reassignment(topic, 0, (1, 2, 3)),))
    (outcome,) = asyncio.run_coroutine_threadsafe(broker.metadata.submit(all_three), broker.loop).result(90)
    assert outcome.error is None
    until(lambda: set(broker.metadata.image.topics[topic].partitions[0].isr) == {1, 2, 3})
    for node in three.nodes.values():
        copy = node.broker.partitions.get(topic, 0)
        assert copy is not None
        until(lambda c=copy: c.high_watermark == 4 and c.log.log_start_offset == 1)
        assert read_values(copy.log) == [b"b", b"c", b"d"]


@pytest.mark.parametrize(
    "configs", [{}, {"flush_messages": "1000", "flush_ms": "100"}], ids=["durable", "flushed later"]
)
def test_a_copy_in_very_many_segments_is_made_some_at_a_time(
    three: ThreeNodes, configs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client chooses how small they are. All of a reply were begun in one turn, and stayed open until its flush."""
    monkeypatch.setattr(log_module, "MOST_BEGUN", 3)
    begun: list[int] = []
    append_replicated = PartitionLog.append_replicated

    def spy(log: PartitionLog, data: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> int:
        count = len(log.segments)
        try:
            return append_replicated(log, data, headers, now_ms)
        finally:
            begun.append(len(log.segments) - count)

    topic = f"many{len(configs)}"
    leader = led_by(three, topic, **configs)
    with RawClient(three.nodes[leader].listen) as client:
        for number in range(20):
            client.call("produce", 9, **produce_fields(topic, batch_of(b"%d" % number), acks=-1))
        # The leader keeps its segment: it sends all of it together.
        setting = {"name": "segment.bytes", "config_operation": 0, "value": "14"}
        resource = {"resource_type": 2, "resource_name": topic, "configs": [setting]}
        client.call("incremental_alter_configs", 1, resources=[resource])
    broker = three.nodes[leader].broker
    monkeypatch.setattr(PartitionLog, "append_replicated", spy)
    all_three = AlterReassignments((Reassignment(topic, 0, (1, 2, 3)),))
    (outcome,) = asyncio.run_coroutine_threadsafe(broker.metadata.submit(all_three), broker.loop).result(90)
    assert outcome.error is None
    until(lambda: set(broker.metadata.image.topics[topic].partitions[0].isr) == {1, 2, 3})
    assert max(begun) == 3
    assert sum(begun) == 20
    for node in three.nodes.values():
        copy = node.broker.partitions.get(topic, 0)
        assert copy is not None
        assert read_values(copy.log) == [b"%d" % number for number in range(20)]


def test_very_many_segments_are_cut_some_at_a_time(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has passed a follower that was away: all that it has is cut. A client chooses how many that are."""
    monkeypatch.setattr(following_module, "_CUT_AT_ONCE", 3)
    cut: list[int] = []
    truncate = PartitionLog.truncate

    def spy(log: PartitionLog, truncation: Truncation) -> None:
        count = len(log.segments)
        truncate(log, truncation)
        cut.append(count - len(log.segments))

    monkeypatch.setattr(PartitionLog, "truncate", spy)
    leader = led_by(three, "cut", segment_bytes="14")
    with RawClient(three.nodes[leader].listen) as client:
        for _ in range(10):
            client.call("produce", 9, **produce_fields("cut", batch_of(b"a"), acks=-1))
    broker = three.nodes[leader].broker
    partition = broker.partitions.find("cut", 0)

    async def follow() -> None:
        following = Following(broker.replicas.replication.copying, partition, partition.leader_epoch)
        reply = FetchedPartition(partition.topic_id, 0, high_watermark=60, log_start_offset=50)
        reply.error = ErrorCode.OFFSET_OUT_OF_RANGE
        await following.handle(reply)

    asyncio.run_coroutine_threadsafe(follow(), broker.loop).result(90)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (50, 50)
    assert sum(cut) == 10
    assert max(cut) <= 3


def test_what_cannot_be_followed_is_asked_for_less_and_less_often(three: ThreeNodes) -> None:
    leader = led_by(three, "paused")
    broker = three.nodes[leader].broker
    partition = broker.partitions.find("paused", 0)

    async def pauses() -> None:
        following = Following(broker.replicas.replication.copying, partition, partition.leader_epoch)
        assert [following.next_pause() for _ in range(7)] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
        following.take(FetchedPartition(partition.topic_id, 0, high_watermark=0, log_start_offset=0))
        assert following.next_pause() == 0.02

    asyncio.run_coroutine_threadsafe(pauses(), broker.loop).result(90)


def test_a_follower_has_deleted_records_when_its_disk_knows(three: ThreeNodes) -> None:
    leader = led_by(three, "deleted")
    with RawClient(three.nodes[leader].listen) as client:
        client.call("produce", 9, **produce_fields("deleted", batch_of(b"a", b"b"), acks=-1))
    replicas = three.nodes[leader].broker.metadata.image.topics["deleted"].partitions[0].replicas
    held = HeldDisk(three.nodes[next(each for each in replicas if each != leader)])
    try:
        assert delete(three, leader, "deleted", 1, 500) == (REQUEST_TIMED_OUT, 0)
    finally:
        held.let_go()
    assert delete(three, leader, "deleted", 1, 60_000) == (0, 1)


def test_a_follower_that_deletes_before_its_leader_says_so(three: ThreeNodes) -> None:
    """Each node deletes what is too old for itself: whoever would join must have deleted as much as the leader."""
    leader = led_by(three, "retained")
    with RawClient(three.nodes[leader].listen) as client:
        client.call("produce", 9, **produce_fields("retained", batch_of(b"a", b"b"), acks=-1))
    replicas = three.nodes[leader].broker.metadata.image.topics["retained"].partitions[0].replicas
    (follower,) = set(replicas) - {leader}
    for node_id in (follower, leader):
        broker = three.nodes[node_id].broker
        until(
            lambda b=broker: (
                (copy := b.partitions.get("retained", 0)) is not None and copy.high_watermark == 2
            )
        )
        copy = broker.partitions.get("retained", 0)
        assert copy is not None
        deletion = broker.upkeep.delete_records_before(copy, 1)
        asyncio.run_coroutine_threadsafe(deletion, broker.loop).result(90)
    state = three.nodes[leader].broker.partitions.find("retained", 0).replication
    assert state is not None
    known = state.follower(follower)
    assert known is not None
    until(lambda: known.log_start_offset == 1)
