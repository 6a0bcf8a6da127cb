"""A single node whose disk is full, or whose records are damaged or missing, says so, and what to do."""

from datetime import timedelta

import pytest

from millstream.admin.cluster_view import ClusterView, view_cluster
from millstream.broker.http import NodeHealth
from millstream.cli.cluster import show_status
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.settings import ClusterSettings
from millstream.http.node_routes import Health, HealthStatus
from millstream.protocol.errors import ErrorCode
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.logs import read_values
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    produce,
)
from support.three_nodes import until

VALUES = [b"%d" % number * 200 for number in range(10)]
FIRST = "/data/topics/t/partition-0/00000000000000000000.log"


def filled() -> SimulatedDisk:
    """Of a node that was stopped."""
    disk = SimulatedDisk()
    with node_on(disk) as node, RawClient(node.listen) as client:
        create_topic(client, "t", segment_bytes=1000)
        for value in VALUES:
            assert produce(client, "t", batch_of(value)).error_code == 0
    return disk


def health_of(node: InProcessNode) -> Health:
    broker = node.broker
    return NodeHealth(
        broker.node_id,
        broker.machine.clock,
        broker.metrics,
        broker.partitions,
        broker.logs.writability,
        lambda: broker.metadata,
        lambda: broker.waiting_for,
        lambda: broker.replicas.faults,
        lambda: 0,
        (),
    )()


def status_of(node: InProcessNode) -> ClusterView:
    host, port = node.listen.split(":")
    with Cluster(ClusterSettings(((host, int(port)),))) as cluster:
        return view_cluster(cluster)


def fetched(node: InProcessNode, offset: int) -> int:
    with RawClient(node.listen) as client:
        (found,) = fetched_partitions(client.call("fetch", 11, **fetch_fields("t", offset)))
    return int(found.error_code)


def assert_told(node: InProcessNode) -> None:
    until(lambda: status_of(node).faulty == ["t:0"])
    status, health = status_of(node), health_of(node)
    assert status.problems == ["1 partitions with damaged or missing records"]
    (fault,) = status.faults
    assert "there is no other replica" in fault.reason
    assert "from a backup" in fault.advice
    assert health.status is HealthStatus.DEGRADED
    assert fault.reason in health.reasons[0]
    assert health.stay_away == [], "clients may come for all the rest"
    assert fetched(node, 0) == ErrorCode.CORRUPT_MESSAGE


def test_a_missing_segment_is_told_until_its_file_is_put_back() -> None:
    disk = filled()
    lost = disk.read(FIRST)
    disk.unlink(FIRST)
    disk.restart()
    with node_on(disk) as node:
        assert_told(node)
    disk.restart()
    with node_on(disk) as node:
        assert_told(node)
    disk.write_atomically(FIRST, lost)
    disk.restart()
    with node_on(disk) as node:
        until(lambda: not status_of(node).faults)
        assert (status_of(node).problems, health_of(node).status) == ([], HealthStatus.OK)
        assert read_values(node.broker.partitions.find("t", 0).log) == VALUES


def test_damage_that_a_reader_meets_is_told_until_what_is_damaged_was_given_up() -> None:
    disk = filled()
    disk.restart()
    with node_on(disk) as node:
        assert status_of(node).problems == []
        disk.flip_bit(FIRST, 100)
        assert fetched(node, 0) == ErrorCode.CORRUPT_MESSAGE
        assert_told(node)
        command = status_of(node).faults[0].advice.partition("--before-offset ")[2].rstrip("`")
        with RawClient(node.listen) as client:
            partition = {"partition_index": 0, "offset": int(command)}
            topics = [{"name": "t", "partitions": [partition]}]
            client.call("delete_records", 2, topics=topics, timeout=timedelta(seconds=60))
        until(lambda: not status_of(node).faults)
        assert health_of(node).status is HealthStatus.OK


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_damage_is_told_after_a_start_too(stop: str) -> None:
    disk = filled()
    disk.restart()
    with node_on(disk) as node:
        disk.flip_bit(FIRST, 100)
        assert fetched(node, 0) == ErrorCode.CORRUPT_MESSAGE
        assert_told(node)
        twin = disk.twin()
    if stop == "clean":
        twin = disk
    twin.restart()
    with node_on(twin) as node:
        if stop == "killed":
            assert fetched(node, 0) == ErrorCode.CORRUPT_MESSAGE
        assert_told(node)


def test_a_single_node_whose_disk_is_full_is_degraded_until_there_is_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = SimulatedDisk()
    with node_on(disk) as node, RawClient(node.listen) as client:
        create_topic(client, "t")
        assert status_of(node).is_healthy
        disk.capacity_bytes = disk.used_bytes() + 100
        assert produce(client, "t", batch_of(b"x" * 10_000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        status = status_of(node)
        show_status(status)
        assert health_of(node).status is HealthStatus.DEGRADED
        disk.capacity_bytes = None
        until(lambda: status_of(node).is_healthy)
    assert status.problems == ["1 of 1 nodes refuse writes"]
    (told,) = status.refusing
    assert told.reason.startswith("its disk is full: ")
    assert "make room at /data" in told.advice
    shown = capsys.readouterr().out
    assert "Degraded: 1 of 1 nodes refuse writes" in shown
    assert "make room at /data" in shown


def test_a_disk_that_does_not_answer_is_told_from_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with node_on(SimulatedDisk()) as node:
        monkeypatch.setattr(node.broker.logs.flusher, "longest_wait_seconds", lambda: 1e6)
        (told,) = status_of(node).refusing
        assert told.reason == "its disk does not answer: writes are refused"
