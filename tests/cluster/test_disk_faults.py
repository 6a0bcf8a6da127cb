"""One node of three whose disk is full, fails or is slow: others go on, nothing acknowledged is lost, it returns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.faulty_node import FaultyNode, node_of
from support.gateway import GatewayAlone
from support.taking_over import others_go_on

# In one process, so that they share a cluster: each leaves it as it was.
pytestmark = pytest.mark.xdist_group("disk-faults")

# Sessions longer than the default: the machine that runs the tests may be busy.
SETTINGS = {
    "cluster.session_timeout": "3s",
    "replication.placement": "balanced",
    "replication.replica_lag_time_max": "3s",
}
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path_factory.mktemp("disks"), settings=SETTINGS, kind=FaultyNode) as cluster:
        yield cluster.start()


@pytest.fixture
def topic(cluster: ClusterProcesses, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    cluster.create_topic(name, PARTITIONS, min_insync_replicas="2")
    return name


def test_a_full_disk_is_left_out_until_there_is_room(cluster: ClusterProcesses, topic: str) -> None:
    with AckedWriter(cluster.bootstrap, topic, PARTITIONS) as writer:
        writer.wait_for(100)
        full = cluster.topics(1)[topic][0]
        node_of(cluster, full).trouble(is_full=True)
        others_go_on(cluster, topic, writer, full)
        node_of(cluster, full).trouble()
        cluster.wait_in_sync(topic)
        writer.wait_for(50)
    judge(writer, read_numbers(cluster.bootstrap, topic, PARTITIONS))
    assert not writer.errors
    eventually(lambda: cluster.nodes[full].log_entries("disk has room"), bool, "a word about it")


def test_a_disk_that_does_not_answer_is_left_out(cluster: ClusterProcesses, topic: str) -> None:
    with AckedWriter(cluster.bootstrap, topic, PARTITIONS) as writer:
        writer.wait_for(100)
        stuck = cluster.topics(1)[topic][0]
        node_of(cluster, stuck).trouble(sync_seconds=1000)
        others_go_on(cluster, topic, writer, stuck)
        node_of(cluster, stuck).trouble()
        cluster.wait_in_sync(topic)
        writer.wait_for(50)
    judge(writer, read_numbers(cluster.bootstrap, topic, PARTITIONS))
    assert not writer.errors


def test_an_acknowledgement_that_cannot_be_stored_says_why(tmp_path: Path) -> None:
    with (
        cluster_of(tmp_path / "nodes", 1, SETTINGS, FaultyNode) as cluster,
        GatewayAlone(tmp_path / "gateway", cluster.start().bootstrap) as gateway,
    ):
        gateway.wait_healthy(1)
        client, wanted = gateway.client, {"topic": "jobs", "group": "workers"}
        client.post("/admin/topics", json={"name": "jobs", "partitions": 1}).raise_for_status()
        client.post("/produce?topic=jobs", content=b"work").raise_for_status()
        polled = client.get("/consume", params=wanted, headers={"accept": "application/json"})
        (message,) = polled.json()["messages"]
        node_of(cluster, 1).trouble(is_full=True)
        refused = client.post("/ack", params=wanted, json={"id": message["id"]})
        node_of(cluster, 1).trouble()
        assert (refused.status_code, refused.headers.get("retry-after")) == (503, "1"), refused.text
        assert "No space left on device" in refused.text
        wanted["wait"] = "1"
        polled = eventually(
            lambda: client.get("/consume", params=wanted, headers={"accept": "application/json"}).json(),
            lambda answer: bool(answer["messages"]),
            "the message comes again",
        )
        (message,) = polled["messages"]
        client.post("/ack", params=wanted, json={"id": message["id"]}).raise_for_status()


@pytest.mark.long
def test_a_failed_fsync_ends_the_node_and_a_restart_heals_it(cluster: ClusterProcesses, topic: str) -> None:
    with AckedWriter(cluster.bootstrap, topic, PARTITIONS) as writer:
        writer.wait_for(100)
        failing = cluster.topics(1)[topic][0]
        node = node_of(cluster, failing)
        node.trouble(failing_syncs=1000)
        assert node.wait_for_end() == 1
        others_go_on(cluster, topic, writer, failing)
        node.start()
        cluster.wait_in_sync(topic)
        writer.wait_for(50)
    judge(writer, read_numbers(cluster.bootstrap, topic, PARTITIONS))
    assert not writer.errors


@pytest.mark.long
def test_a_slow_disk_slows_and_loses_nothing(cluster: ClusterProcesses, topic: str) -> None:
    with AckedWriter(cluster.bootstrap, topic, PARTITIONS) as writer:
        writer.wait_for(50)
        slow = cluster.topics(1)[topic][0]
        node_of(cluster, slow).trouble(sync_seconds=0.2)
        writer.wait_for(100)
        node_of(cluster, slow).trouble()
        writer.wait_for(50)
        cluster.wait_in_sync(topic)
    judge(writer, read_numbers(cluster.bootstrap, topic, PARTITIONS))
    assert not writer.errors
