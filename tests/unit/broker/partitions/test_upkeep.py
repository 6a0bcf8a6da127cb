"""Retention, checkpoints and removal of files on a running node, over losses of power and full disks."""

import asyncio
import errno
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest

from millstream.broker.partitions import upkeep
from millstream.broker.partitions.partition import Partition
from millstream.config.topic import TopicConfig
from millstream.storage import store
from millstream.storage.checkpoint import LogCheckpoint, describe, read_checkpoint
from millstream.storage.log import PartitionLog
from millstream.testing.disk import Fault, Operation, SimulatedDisk
from support.held_disk import HeldDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, produce, produce_fields
from support.three_nodes import until

OLD_MS = 1_000_000


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def node(disk: SimulatedDisk) -> Iterator[InProcessNode]:
    with node_on(disk) as node:
        yield node


@pytest.fixture
def client(node: InProcessNode) -> Iterator[RawClient]:
    with RawClient(node.listen) as client:
        yield client


def on_loop(node: InProcessNode, work: Coroutine[Any, Any, None]) -> None:
    asyncio.run_coroutine_threadsafe(work, node.loop).result(90)


def partition_of(node: InProcessNode, topic: str) -> Partition:
    return node.broker.partitions.find(topic, 0)


def old_records(client: RawClient, count: int = 10, **config: Any) -> str:
    topic = create_topic(client, "t", segment_bytes=1000, retention_ms=1000, **config)
    for _ in range(count):
        assert produce(client, topic, batch_of(b"x" * 200, timestamp_ms=OLD_MS)).error_code == 0
    return topic


def log_files(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".log")]


def after_power_loss(disk: SimulatedDisk, topic: str) -> tuple[int, int]:
    """Where the log begins and ends on a machine that loses power now."""
    twin = disk.twin()
    twin.restart(power_loss=True)
    # Deleted files may be back, and a full disk would have no room for the start.
    twin.capacity_bytes = None
    with node_on(twin) as other:
        log = partition_of(other, topic).log
        assert log.offline is None
        assert not log.segments.damaged
        return log.log_start_offset, log.log_end_offset


def entries_on(disk: SimulatedDisk) -> list[str]:
    found = read_checkpoint(disk, "/data")
    return [entry.topic for entry in found[0]] if found is not None else []


def test_a_removed_log_does_not_stay_in_the_checkpoint(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    for topic in ("kept", "gone"):
        assert produce(client, create_topic(client, topic), batch_of(b"a")).error_code == 0
    on_loop(node, node.broker.upkeep.checkpoint())
    assert entries_on(disk) == ["kept", "gone"]
    client.call("delete_topics", 5, topic_names=["gone"], timeout=timedelta(seconds=60))
    until(lambda: entries_on(disk) == ["kept"])


def test_a_log_that_goes_while_the_checkpoint_is_written_does_not_stay_in_it(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    for topic in ("kept", "gone"):
        assert produce(client, create_topic(client, topic), batch_of(b"a")).error_code == 0
    held = HeldDisk(node)
    written = asyncio.run_coroutine_threadsafe(node.broker.upkeep.checkpoint(), node.loop)
    until(node.broker.upkeep._checkpointing.locked)
    on_loop(node, remove_log(node, "gone"))
    held.let_go()
    written.result(120)
    assert entries_on(disk) == ["kept"]


async def remove_log(node: InProcessNode, topic: str) -> None:
    node.broker.store.remove(topic, 0)


def test_old_segments_go_and_the_log_keeps_its_offsets(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    topic = old_records(client)
    on_loop(node, node.broker.upkeep.enforce_retention())
    log = partition_of(node, topic).log
    assert (log.log_start_offset, log.log_end_offset, log.segments.record_count, log.size_bytes) == (
        10,
        10,
        0,
        0,
    )
    assert log_files(disk) == [log.segments[0].log_path]
    assert after_power_loss(disk, topic) == (10, 10)
    assert produce(client, topic, batch_of(b"new")).base_offset == 10
    assert after_power_loss(disk, topic) == (10, 11)


def test_where_the_log_begins_is_on_disk_before_what_was_before_it_goes(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    """Otherwise a loss of power between the two would leave no segment, and the log would begin at 0 again."""
    topic = old_records(client)
    log = partition_of(node, topic).log
    disk.faults.add(Fault(Operation.SYNC_DIRECTORY, path="*/partition-0", times=None))
    on_loop(node, node.broker.upkeep.enforce_retention())
    assert log.offline is not None
    assert f"{log.directory}/{0:020d}.log" in log_files(disk)
    disk.faults.clear()
    assert after_power_loss(disk, topic) == (0, 10)


def test_what_expires_while_the_new_start_is_written_is_for_the_next_time(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    """Its segments went with the others, though the start on disk was below them: they were missed after a crash."""
    topic = create_topic(client, "t", segment_bytes=1000, retention_bytes=1500, retention_ms=-1)
    for _ in range(12):
        assert produce(client, topic, batch_of(b"x" * 200, timestamp_ms=OLD_MS)).error_code == 0
    log = partition_of(node, topic).log
    held = HeldDisk(node)
    retained = asyncio.run_coroutine_threadsafe(node.broker.upkeep.enforce_retention(), node.loop)
    until(lambda: log.log_start_offset > 0)
    start = log.log_start_offset
    log.config = TopicConfig(segment_bytes=1000, retention_ms=1000)
    held.let_go()
    retained.result(90)
    assert log.segments[0].base_offset == log.log_start_offset == start
    assert after_power_loss(disk, topic) == (start, 12)
    on_loop(node, node.broker.upkeep.enforce_retention())
    assert after_power_loss(disk, topic) == (12, 12)


def test_retention_makes_room_on_a_full_disk(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    topic = old_records(client, file_delete_delay_ms=0)
    log = partition_of(node, topic).log
    disk.capacity_bytes = disk.used_bytes()
    assert produce(client, topic, batch_of(b"x" * 500, timestamp_ms=OLD_MS)).error_code != 0
    on_loop(node, node.broker.upkeep.enforce_retention())
    assert log.offline is None
    assert log.log_start_offset > 0
    on_loop(node, _until_removed(disk))
    # Where the log begins now could not be written. What was deleted is not missed all the same.
    assert after_power_loss(disk, topic) == (log.segments[0].base_offset, log.log_end_offset)
    assert produce(client, topic, batch_of(b"x" * 500, timestamp_ms=OLD_MS)).error_code == 0
    assert not [path for path in disk.paths() if path.endswith(".dropped")]
    assert after_power_loss(disk, topic)[0] == log.log_start_offset


async def _until_removed(disk: SimulatedDisk) -> None:
    while any(path.endswith(".deleted") for path in disk.paths()):  # noqa: ASYNC110 - another thread removes them
        await asyncio.sleep(0.01)


def test_a_topic_can_be_deleted_while_the_disk_has_no_room_for_a_directory(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    """There was none to move its files to: they stayed, and so did the topic's other partitions."""
    topic = create_topic(client, "t", 2, file_delete_delay_ms=0)
    for index in range(2):
        assert produce(client, topic, batch_of(b"x"), partition=index).error_code == 0
    disk.faults.add(Fault(Operation.MAKE_DIRECTORY, errno.ENOSPC, times=None))
    client.call("delete_topics", 5, topic_names=[topic], timeout=timedelta(seconds=60))
    until(lambda: not log_files(disk))
    assert not node.broker.store.logs


def test_a_directory_that_is_being_deleted_does_not_come_back_in_part() -> None:
    """Without its identity it would be taken for that of the next topic of its name."""
    disk = SimulatedDisk()
    with node_on(disk) as node, RawClient(node.listen) as client:
        topic = create_topic(client, "t", file_delete_delay_ms=0)
        assert produce(client, topic, batch_of(b"a")).error_code == 0
        assert log_files(disk) == ["/data/topics/t/partition-0/00000000000000000000.log"]
        client.call("delete_topics", 5, topic_names=["t"], timeout=timedelta(seconds=60))
        until(lambda: not log_files(disk))
        for _ in range(20):
            twin = disk.twin()
            twin.restart(power_loss=True)
            assert not [path for path in twin.paths() if path.startswith("/data/topics/t/")]


def test_deleted_files_that_wait_for_their_delay_are_gone_after_a_clean_stop(disk: SimulatedDisk) -> None:
    with node_on(disk) as node, RawClient(node.listen) as client:
        old_records(client)
        on_loop(node, node.broker.upkeep.enforce_retention())
        assert [path for path in disk.paths() if path.endswith(".deleted")]
    assert not [path for path in disk.paths() if path.endswith(".deleted")]


def test_records_deleted_by_request_stay_deleted(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    topic = create_topic(client, "t")
    for _ in range(6):
        produce(client, topic, batch_of(b"x"))
    on_loop(node, node.broker.upkeep.delete_records_before(partition_of(node, topic), 4))
    assert after_power_loss(disk, topic) == (4, 6)
    on_loop(node, node.broker.upkeep.delete_records_before(partition_of(node, topic), 6))
    assert after_power_loss(disk, topic) == (6, 6)


def test_very_many_segments_are_removed_in_several_turns(
    node: InProcessNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client chooses how small they are, and each takes some renames."""
    monkeypatch.setattr(upkeep, "_DROPPED_AT_ONCE", 2)
    dropped: list[int] = []
    drop = PartitionLog.drop_segments

    def spy(log: PartitionLog, count: int) -> list[str]:
        dropped.append(count)
        return drop(log, count)

    monkeypatch.setattr(PartitionLog, "drop_segments", spy)
    topic = old_records(client, 40)
    on_loop(node, node.broker.upkeep.enforce_retention())
    assert len(dropped) > 2
    assert max(dropped) == 2
    assert [each.summary.size_bytes for each in partition_of(node, topic).log.segments] == [0]


def test_very_many_logs_are_described_in_several_turns(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With half a million producers, or as many segments, a checkpoint took a fifth of a second."""
    monkeypatch.setattr(upkeep, "_DESCRIBED_AT_ONCE_BYTES", 1)
    for name in ("a", "b", "c"):
        produce(client, create_topic(client, name), batch_of(b"x"))
    order: list[str] = []

    def spy(topic: str, index: int, log: PartitionLog) -> LogCheckpoint:
        order.append(topic)
        asyncio.get_running_loop().call_soon(order.append, "turn")
        return describe(topic, index, log)

    monkeypatch.setattr(store, "describe", spy)
    on_loop(node, node.broker.upkeep.checkpoint())
    assert order[:6] == ["a", "turn", "b", "turn", "c", "turn"]
    assert {"a", "b", "c"} <= set(entries_on(disk))


def test_checkpoints_that_are_asked_for_at_once_do_not_get_in_each_others_way(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    topic = old_records(client)

    async def many() -> None:
        await asyncio.gather(*(node.broker.upkeep.checkpoint() for _ in range(5)))

    on_loop(node, many())
    found = read_checkpoint(disk, "/data")
    assert found is not None
    (entry,) = [each for each in found[0] if each.topic == topic]
    assert entry.flushed_offset == 10


def test_a_flush_that_finds_no_room_fails_its_requests_and_the_retry_is_acknowledged_later(
    node: InProcessNode, client: RawClient, disk: SimulatedDisk
) -> None:
    topic = create_topic(client, "t")
    batch = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    fault = disk.faults.add(Fault(Operation.WRITE, 28, path="*/t/*checkpoint.tmp", times=None))
    refused = produce(client, topic, batch)
    assert refused.error_code == 56
    assert "no room" in refused.error_message
    assert partition_of(node, topic).high_watermark == 0
    fault.times = 0
    retried = produce(client, topic, batch)
    assert (retried.error_code, retried.base_offset) == (0, 0)
    assert partition_of(node, topic).high_watermark == 1
    assert after_power_loss(disk, topic) == (0, 1)


def test_a_sync_that_fails_while_the_node_stops_leaves_no_clean_marker(disk: SimulatedDisk) -> None:
    with node_on(disk) as node, RawClient(node.listen) as client:
        topic = create_topic(client, "t")
        produce(client, topic, batch_of(b"kept"))
        disk.faults.add(Fault(Operation.SYNC, path="*.log", times=None))
        client.send("produce", 9, **produce_fields(topic, batch_of(b"lost")))
    disk.faults.clear()
    disk.restart()
    with node_on(disk) as node:
        assert not node.broker.store.was_clean or partition_of(node, topic).log.log_end_offset == 1
