"""What clients see of a disk that fails: a node with its sockets, on a simulated disk."""

import errno
from collections.abc import Iterator

import pytest

from millstream.testing.disk import Fault, Operation, SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    produce,
    produce_fields,
)
from support.waiting import wait_for

COORDINATOR_LOAD_IN_PROGRESS = 14
KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE = 56, 5


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


def test_a_failed_fsync_takes_its_partition_offline_and_no_other(
    client: RawClient, disk: SimulatedDisk
) -> None:
    topic = create_topic(client, "t", partitions=2)
    assert produce(client, topic, batch_of(b"a")).error_code == 0
    assert produce(client, topic, batch_of(b"a"), partition=1).error_code == 0
    disk.faults.add(Fault(Operation.SYNC, path="*partition-0/*.log", times=None))
    failed = produce(client, topic, batch_of(b"b"))
    assert (failed.error_code, failed.base_offset) == (KAFKA_STORAGE_ERROR, -1)
    assert "offline" in failed.error_message
    disk.faults.clear()
    assert produce(client, topic, batch_of(b"c")).error_code == KAFKA_STORAGE_ERROR
    broken, sound = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, 0, 0)))
    assert (broken.error_code, sound.error_code, sound.high_watermark) == (KAFKA_STORAGE_ERROR, 0, 1)
    (known,) = client.call("metadata", 12, topics=[{"name": topic}]).topics
    assert [each.error_code for each in known.partitions] == [LEADER_NOT_AVAILABLE, 0]
    assert produce(client, topic, batch_of(b"b"), partition=1).base_offset == 1


def test_a_failed_fsync_fails_everything_that_waited_for_it(client: RawClient, disk: SimulatedDisk) -> None:
    topic = create_topic(client, "t")
    disk.faults.add(Fault(Operation.SYNC, path="*.log", times=None))
    fields = produce_fields(topic, batch_of(b"a"))
    fields["topic_data"][0]["partition_data"] *= 2
    client.send("produce", 9, **fields)
    client.send("produce", 9, **produce_fields(topic, batch_of(b"b")))
    client.send("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=300_000))
    first, second = client.receive().responses[0].partition_responses
    assert (first.error_code, second.error_code) == (KAFKA_STORAGE_ERROR, KAFKA_STORAGE_ERROR)
    assert client.receive().responses[0].partition_responses[0].error_code == KAFKA_STORAGE_ERROR
    assert fetched_partitions(client.receive())[0].error_code == KAFKA_STORAGE_ERROR


def test_a_failing_read_is_told_and_the_next_one_served(client: RawClient, disk: SimulatedDisk) -> None:
    topic = create_topic(client, "t")
    produce(client, topic, batch_of(b"a"))
    disk.faults.add(Fault(Operation.READ, path="*.log", times=None))
    (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, 0, max_wait_ms=300_000)))
    assert fetched.error_code == KAFKA_STORAGE_ERROR
    disk.faults.clear()
    (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, 0)))
    assert (fetched.error_code, len(fetched.records)) == (0, len(batch_of(b"a")))


def test_a_record_that_rots_on_disk_is_not_served(client: RawClient, disk: SimulatedDisk) -> None:
    topic = create_topic(client, "t")
    for _ in range(3):
        produce(client, topic, batch_of(b"a" * 100))
    (path,) = [path for path in disk.paths() if path.endswith(".log")]
    disk.flip_bit(path, len(batch_of(b"a" * 100)) + 80)
    (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, 0)))
    assert (fetched.error_code, len(fetched.records)) == (0, len(batch_of(b"a" * 100)))
    (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, 1)))
    assert (fetched.error_code, fetched.records or b"") == (2, b"")
    (fetched,) = fetched_partitions(client.call("fetch", 12, **fetch_fields(topic, 2)))
    assert fetched.error_code == 0


def test_a_metadata_log_that_cannot_be_written_refuses_changes_and_keeps_serving(
    client: RawClient, disk: SimulatedDisk
) -> None:
    topic = create_topic(client, "t")
    disk.faults.add(Fault(Operation.WRITE, path="*__cluster_metadata*", code=errno.ENOSPC, times=None))
    wanted = {"name": "other", "num_partitions": 1, "replication_factor": 1}
    assert client.call("create_topics", 7, topics=[wanted]).topics[0].error_code == KAFKA_STORAGE_ERROR
    created = client.call("metadata", 12, topics=[{"name": "auto"}], allow_auto_topic_creation=True).topics[0]
    assert created.error_code == KAFKA_STORAGE_ERROR
    assert produce(client, topic, batch_of(b"a")).error_code == 0
    disk.faults.clear()
    create_topic(client, "other")


def test_a_coordinator_whose_record_found_no_room_is_loaded_when_there_is_room(
    client: RawClient, disk: SimulatedDisk
) -> None:
    topic = create_topic(client, "t")
    client.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
    place = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
    commit = {"group_id": "g", "topics": [{"name": topic, "partitions": [place]}]}

    def code() -> int:
        return client.call("offset_commit", 8, **commit).topics[0].partitions[0].error_code

    fault = Fault(Operation.WRITE, path="*__consumer_offsets*checkpoint.tmp", code=errno.ENOSPC, times=None)
    disk.faults.add(fault)
    # Its record is in the log, and is shown when it is flushed. Nobody appends another before.
    wait_for(code, lambda given: given == COORDINATOR_LOAD_IN_PROGRESS, "a record without room")
    fault.times = 0
    wait_for(code, lambda given: given == 0, "the coordinator")
