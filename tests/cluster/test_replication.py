"""Three replicas: what was acknowledged by all survives kills, pauses and restarts, once and in order."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cluster import ClusterProcesses, cluster_of, eventually

SETTINGS = {"cluster.session_timeout": "2s", "replication.placement": "balanced"}
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        yield cluster.start()


def leader_of(cluster: ClusterProcesses, via: int, partition: int = 0, name: str = "t") -> int:
    return cluster.topics(via)[name][partition]


def test_a_killed_leader_loses_nothing_that_was_acknowledged(cluster: ClusterProcesses) -> None:
    cluster.create_topic("t", PARTITIONS)
    with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
        writer.wait_for(200)
        killed = leader_of(cluster, 1)
        cluster.nodes[killed].kill()
        writer.wait_for(300)
        cluster.nodes[killed].start()
        cluster.wait_in_sync("t")
        writer.wait_for(100)
    judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
    assert not writer.errors


@pytest.mark.long
def test_two_nodes_killed_in_turn(cluster: ClusterProcesses) -> None:
    cluster.create_topic("t", PARTITIONS)
    with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
        writer.wait_for(100)
        for turn in range(2):
            killed = leader_of(cluster, cluster.others()[turn])
            cluster.nodes[killed].kill()
            writer.wait_for(100)
            cluster.nodes[killed].start()
            cluster.wait_in_sync("t")
    judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
    assert not writer.errors


def test_a_paused_leader_cannot_acknowledge_when_it_returns(cluster: ClusterProcesses) -> None:
    cluster.create_topic("t", PARTITIONS)
    with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
        writer.wait_for(100)
        paused = leader_of(cluster, 1)
        process = cluster.nodes[paused].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        survivor = cluster.others(paused)[0]
        eventually(
            lambda: leader_of(cluster, survivor), lambda seen: seen not in (paused, -1), "a new leader"
        )
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        writer.wait_for(200)
        cluster.wait_in_sync("t")
    judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
    assert not writer.errors


def test_a_rolling_restart_under_load(cluster: ClusterProcesses) -> None:
    cluster.create_topic("t", PARTITIONS)
    with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
        for node in cluster.nodes.values():
            writer.wait_for(50)
            node.restart()
            cluster.wait_in_sync("t")
    judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
    assert not writer.errors
