"""A node of three that returns with less than it had: an older copy of its disk, or nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cli import Cli
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.node import NodeFailed

SETTINGS = {"cluster.session_timeout": "10s", "replication.placement": "balanced"}
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic("t", PARTITIONS, min_insync_replicas="2")
        yield cluster


@pytest.mark.parametrize(
    "is_clean", [pytest.param(True, marks=pytest.mark.long, id="stopped"), pytest.param(False, id="killed")]
)
def test_an_old_copy_of_a_disk_is_brought_up_to_date(
    cluster: ClusterProcesses, tmp_path: Path, is_clean: bool
) -> None:
    with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
        writer.wait_for(100)
        number = cluster.topics(1)["t"][0]
        node, other = cluster.nodes[number], cluster.others(number)[0]
        (node.stop if is_clean else node.kill)()
        shutil.copytree(node.data_dir, tmp_path / "copy")
        node.start()
        cluster.wait_in_sync("t")
        writer.wait_for(200)
        # The quorum's log goes on too.
        cluster.create_topic("meanwhile", 1)
        (node.stop if is_clean else node.kill)()
        shutil.rmtree(node.data_dir)
        (tmp_path / "copy").rename(node.data_dir)
        node.start()
        cluster.wait_in_sync("t")
        writer.wait_for(50)
        # Now it is as good as the others: one of them may go.
        cluster.nodes[other].kill()
        writer.wait_for(50)
    judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
    assert not writer.errors
    assert "meanwhile" in cluster.topics(number)


@pytest.mark.long
def test_an_idle_cluster_brings_an_old_copy_up_to_date_too(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """Nobody writes to the quorum's log: the leader has to find out by itself that its follower knows less."""
    controller = cluster.controller()
    number = cluster.others(controller)[0]
    node = cluster.nodes[number]
    node.stop()
    shutil.copytree(node.data_dir, tmp_path / "copy")
    node.start()
    cluster.create_topic("meanwhile", 1)
    node.stop()
    shutil.rmtree(node.data_dir)
    (tmp_path / "copy").rename(node.data_dir)
    node.start()
    assert "meanwhile" in cluster.topics(number)


@pytest.mark.long
def test_an_empty_disk_is_refused_until_the_old_one_is_given_up(cluster: ClusterProcesses) -> None:
    with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
        writer.wait_for(100)
        number = cluster.topics(1)["t"][0]
        node, other = cluster.nodes[number], cluster.others(number)[0]
        node.kill()
        shutil.rmtree(node.data_dir)
        with pytest.raises(NodeFailed, match="another data directory"):
            node.start()
        writer.wait_for(100)
        Cli(cluster.nodes[other].listen).ok("cluster", "remove", str(number), "--force", "--yes")
        shutil.rmtree(node.data_dir)
        node.start()
        cluster.wait_in_sync("t")
        eventually(lambda: cluster.voters(other), lambda seen: seen == [1, 2, 3], "its vote")
        cluster.nodes[other].kill()
        writer.wait_for(50)
    judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
    assert not writer.errors
