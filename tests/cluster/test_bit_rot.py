"""Records that rotted before a checkpoint knew of them, on the leader's disk, and all nodes are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cli import Cli
from support.cluster import ClusterProcesses, cluster_of

SETTINGS = {
    "cluster.session_timeout": "5s",
    "replication.min_insync_replicas": "2",
    "storage.checkpoint_interval": "1h",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        yield cluster.start()


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_what_rotted_at_the_leader_is_not_lost_when_all_nodes_are_killed(cluster: ClusterProcesses) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 3}
    (created,) = cluster.ask(1, "create_topics", 7, topics=[topic]).topics
    assert created.error_code == 0, created.error_message
    # Small batches, so that there are others behind the one that rots, however busy the machine is.
    with AckedWriter(cluster.seeds, "t", 1, **{"batch.num.messages": 20}) as writer:
        writer.wait_for(200)
    leader = cluster.topics(1)["t"][0]
    for node in cluster.nodes.values():
        node.kill()
    rotten = cluster.nodes[leader]
    flip_a_bit(rotten.partition_dir("t") / f"{0:020d}.log")
    # The last one to come is the one that led.
    others = [number for number in cluster.nodes if number != leader]
    cluster.launch(*others)
    for number in others:
        cluster.nodes[number].wait_until_ready()
    rotten.start()
    assert rotten.log_entries("damaged end cut")
    cluster.wait_in_sync("t")
    judge(writer, read_numbers(cluster.seeds, "t", 1))
    assert Cli(cluster.seeds).json("log", "verify")["same"]
    for node in cluster.nodes.values():
        node.stop()
        Cli("").ok("log", "verify", str(node.data_dir))
