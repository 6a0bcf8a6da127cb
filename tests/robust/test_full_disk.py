"""A full disk: writes are refused with a storage error, reads go on, and everything recovers when there is room."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.protocol.record_batch import iter_batches
from support.node import NodeProcess
from support.raw_client import RawClient, batch_of, create_topic, fetch_fields, fetched_partitions, produce
from support.small_disk import SmallDisk, small_disk
from support.waiting import wait_for

KAFKA_STORAGE_ERROR = 56
DISK_MB = 24


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    directory = tmp_path / "small"
    directory.mkdir()
    with small_disk(directory, DISK_MB) as mounted:
        yield mounted


@pytest.fixture
def node(disk: SmallDisk, tmp_path: Path) -> Iterator[NodeProcess]:
    settings = {"storage.checkpoint_interval": "300ms", "proxy.failover_wait": "300ms"}
    process = NodeProcess(disk.directory, settings=settings)
    process.log_file = tmp_path / "node.log"
    try:
        yield process.start()
    finally:
        process.close()


def offsets(client: RawClient, topic: str, partition: int = 0) -> list[int]:
    """First offsets of all batches of a partition, each checked to be sound."""
    found: list[int] = []
    next_offset = 0
    while True:
        wanted = {"partition": partition, "fetch_offset": next_offset, "partition_max_bytes": 1 << 20}
        fields = {**fetch_fields(topic), "topics": [{"topic": topic, "partitions": [wanted]}]}
        (fetched,) = fetched_partitions(client.call("fetch", 12, **fields))
        assert fetched.error_code == 0
        headers = [header for _, header in iter_batches(memoryview(fetched.records or b""))]
        if not headers:
            return found
        found += [header.base_offset for header in headers]
        next_offset = headers[-1].last_offset + 1


def produce_until_refused(client: RawClient, topic: str, batch: bytes, partition: int = 0) -> list[int]:
    """Offsets of what was acknowledged before the disk was full."""
    acknowledged = []
    for _ in range(200):
        outcome = produce(client, topic, batch, partition=partition)
        if outcome.error_code != 0:
            assert outcome.error_code == KAFKA_STORAGE_ERROR, outcome
            assert "No space left" in outcome.error_message
            return acknowledged
        acknowledged.append(outcome.base_offset)
    raise AssertionError("the disk was never full")


def test_writes_are_refused_while_reads_go_on_and_recover_when_there_is_room(
    node: NodeProcess, disk: SmallDisk, new_topic: Callable[[], str]
) -> None:
    with RawClient(node.listen) as client:
        topic = create_topic(client, new_topic())
        batch = batch_of(b"x" * 200_000)
        assert produce(client, topic, batch).base_offset == 0
        disk.fill(leave_bytes=1_000_000)
        acknowledged = [0, *produce_until_refused(client, topic, batch)]
        assert offsets(client, topic) == acknowledged
        for _ in range(3):
            assert produce(client, topic, batch).error_code == KAFKA_STORAGE_ERROR
        assert offsets(client, topic) == acknowledged
        listed = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        assert client.call("list_offsets", 7, topics=listed).topics[0].partitions[0].offset == len(
            acknowledged
        )
        with pytest.raises(urllib.error.HTTPError) as ill:
            urllib.request.urlopen(f"http://{node.http}/health", timeout=60)
        assert ill.value.code == 503
        told = json.load(ill.value)
        assert (told["status"], told["partitions"]) == ("degraded", 1)
        assert told["reasons"] == ["the disk is full or does not answer: writes are refused"]
        over_http = urllib.request.Request(f"http://{node.http}/produce?topic={topic}", b"x" * 200_000)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(over_http, timeout=120)
        assert (refused.value.code, refused.value.headers["retry-after"]) == (503, "1")
        assert b"No space left" in refused.value.read()
        disk.make_room()
        outcome = produce(client, topic, batch)
        assert (outcome.error_code, outcome.base_offset) == (0, len(acknowledged))
    node.crash_and_restart()
    with RawClient(node.listen) as client:
        assert offsets(client, topic) == [*acknowledged, len(acknowledged)]


def test_a_disk_that_fills_while_segments_roll_takes_no_partition_offline(
    node: NodeProcess, disk: SmallDisk, new_topic: Callable[[], str]
) -> None:
    """New segments, indexes, epochs and snapshots need room too."""
    with RawClient(node.listen) as client:
        partitions = 8
        topic = create_topic(client, new_topic(), partitions=partitions, segment_bytes=30_000)
        batch = batch_of(b"x" * 9_000)
        acknowledged: list[list[int]] = [[] for _ in range(partitions)]
        for room in (300_000, 100_000, 40_000, 20_000, 8_000):
            disk.fill(leave_bytes=room)
            for partition in range(partitions):
                acknowledged[partition] += produce_until_refused(client, topic, batch, partition)
            for partition in range(partitions):
                assert set(acknowledged[partition]) <= set(offsets(client, topic, partition))
            disk.make_room()
            for partition in range(partitions):
                # What a full disk held up may take a moment to be caught up with; nothing needs a restart.
                outcome = wait_for(
                    lambda partition=partition: produce(client, topic, batch, partition=partition),
                    lambda outcome: outcome.error_code == 0,
                    f"partition {partition} takes records again",
                )
                acknowledged[partition].append(outcome.base_offset)
    node.restart()
    with RawClient(node.listen) as client:
        for partition in range(partitions):
            assert set(acknowledged[partition]) <= set(offsets(client, topic, partition))


def test_topics_are_refused_with_a_reason_and_can_be_made_when_there_is_room(
    node: NodeProcess, disk: SmallDisk, new_topic: Callable[[], str]
) -> None:
    with RawClient(node.listen) as client:
        existing = create_topic(client, new_topic())
        produce(client, existing, batch_of(b"a"))
        disk.fill()
        names = [new_topic() for _ in range(3)]
        for _ in range(40):
            topics = [{"name": name, "num_partitions": 50, "replication_factor": 1} for name in names]
            outcomes = client.call("create_topics", 7, topics=topics).topics
            if any(outcome.error_code for outcome in outcomes):
                break
            names = [new_topic() for _ in range(3)]
        assert {outcome.error_code for outcome in outcomes} == {KAFKA_STORAGE_ERROR}
        assert "space" in outcomes[0].error_message
        # Small ones may still find a place in the last block.
        wanted = [{"name": new_topic()} for _ in range(100)]
        created = client.call("metadata", 12, topics=wanted, allow_auto_topic_creation=True).topics
        assert {topic.error_code for topic in created} == {KAFKA_STORAGE_ERROR}
        assert client.call("metadata", 12, topics=[{"name": existing}]).topics[0].error_code == 0
        assert offsets(client, existing) == [0]
        disk.make_room()
        for name in names:
            create_topic(client, name)
            assert produce(client, name, batch_of(b"b")).base_offset == 0
    node.crash_and_restart()
    with RawClient(node.listen) as client:
        for name in names:
            assert offsets(client, name) == [0]


def test_a_node_on_a_full_disk_stops_cleanly_and_comes_back(
    node: NodeProcess, disk: SmallDisk, new_topic: Callable[[], str]
) -> None:
    with RawClient(node.listen) as client:
        topic = create_topic(client, new_topic())
        acknowledged = [produce(client, topic, batch_of(b"x" * 1000)).base_offset for _ in range(5)]
        disk.fill()
        acknowledged += produce_until_refused(client, topic, batch_of(b"x" * 100_000))
    node.stop()
    disk.make_room()
    node.start()
    with RawClient(node.listen) as client:
        assert offsets(client, topic) == acknowledged
        assert produce(client, topic, batch_of(b"y")).base_offset == len(acknowledged)


def test_records_can_be_deleted_to_make_room(
    node: NodeProcess, disk: SmallDisk, new_topic: Callable[[], str]
) -> None:
    with RawClient(node.listen) as client:
        topic = create_topic(client, new_topic(), segment_bytes=300_000, file_delete_delay_ms=0)
        batch = batch_of(b"x" * 100_000)
        disk.fill(leave_bytes=3_000_000)
        count = len(produce_until_refused(client, topic, batch))

        def delete() -> int:
            wanted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": count}]}]
            return int(client.call("delete_records", 2, topics=wanted).topics[0].partitions[0].error_code)

        assert delete() in (0, KAFKA_STORAGE_ERROR)
        disk.make_room()
        wait_for(delete, lambda error: error == 0, "records are deleted")
        assert wait_for(
            lambda: produce(client, topic, batch),
            lambda outcome: outcome.error_code == 0,
            "there is room again",
        )
