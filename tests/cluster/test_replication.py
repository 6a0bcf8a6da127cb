"""Three replicas: what was acknowledged by all survives kills, pauses and restarts, once and in order."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cluster import ClusterProcesses, cluster_of, eventually

SETTINGS = {"cluster.session_timeout": "1s", "replication.placement": "balanced"}
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        yield cluster.start()


def create(cluster: ClusterProcesses, name: str = "t", partitions: int = PARTITIONS, **configs: str) -> None:
    wanted = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 3,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    (created,) = cluster.ask(1, "create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0, created.error_message
    in_sync(cluster, name)


def in_sync(cluster: ClusterProcesses, name: str = "t", count: int = 3, via: int = 1) -> None:
    """Wait until every partition has that many replicas in sync."""

    def look() -> list[int]:
        for topic in cluster.ask(via, "metadata", 12, topics=None).topics:
            if topic.name == name:
                return [len(each.isr_nodes) for each in topic.partitions]
        return []

    eventually(look, lambda seen: bool(seen) and min(seen) >= count, f"{count} replicas in sync")


def bootstrap(cluster: ClusterProcesses) -> str:
    return ",".join(node.listen for node in cluster.nodes.values())


def leader_of(cluster: ClusterProcesses, via: int, partition: int = 0, name: str = "t") -> int:
    return cluster.topics(via)[name][partition]


def others(cluster: ClusterProcesses, *gone: int) -> list[int]:
    return [number for number in cluster.nodes if number not in gone]


def test_a_killed_leader_loses_nothing_that_was_acknowledged(cluster: ClusterProcesses) -> None:
    create(cluster)
    with AckedWriter(bootstrap(cluster), "t", PARTITIONS) as writer:
        writer.wait_for(200)
        killed = leader_of(cluster, 1)
        cluster.nodes[killed].kill()
        writer.wait_for(300)
        cluster.nodes[killed].start()
        in_sync(cluster, via=killed)
        writer.wait_for(100)
    judge(writer, read_numbers(bootstrap(cluster), "t", PARTITIONS))
    assert not writer.errors


@pytest.mark.long
def test_two_nodes_killed_in_turn(cluster: ClusterProcesses) -> None:
    create(cluster)
    with AckedWriter(bootstrap(cluster), "t", PARTITIONS) as writer:
        writer.wait_for(100)
        for turn in range(2):
            killed = leader_of(cluster, others(cluster)[turn])
            cluster.nodes[killed].kill()
            writer.wait_for(100)
            cluster.nodes[killed].start()
            in_sync(cluster, via=killed)
    judge(writer, read_numbers(bootstrap(cluster), "t", PARTITIONS))
    assert not writer.errors


def test_a_paused_leader_cannot_acknowledge_when_it_returns(cluster: ClusterProcesses) -> None:
    create(cluster)
    with AckedWriter(bootstrap(cluster), "t", PARTITIONS) as writer:
        writer.wait_for(100)
        paused = leader_of(cluster, 1)
        process = cluster.nodes[paused].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        survivor = others(cluster, paused)[0]
        eventually(
            lambda: leader_of(cluster, survivor), lambda seen: seen not in (paused, -1), "a new leader"
        )
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        writer.wait_for(200)
        in_sync(cluster, via=survivor)
    judge(writer, read_numbers(bootstrap(cluster), "t", PARTITIONS))
    assert not writer.errors


def test_a_rolling_restart_under_load(cluster: ClusterProcesses) -> None:
    create(cluster)
    with AckedWriter(bootstrap(cluster), "t", PARTITIONS) as writer:
        for node in cluster.nodes.values():
            writer.wait_for(50)
            node.restart()
            in_sync(cluster)
    judge(writer, read_numbers(bootstrap(cluster), "t", PARTITIONS))
    assert not writer.errors
