"""Three empty nodes with a settings file that declares topics: any order and spacing of starts, restarts between."""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from support.cluster import ClusterProcesses, cluster_of, eventually

# As the design of the message queue has it, without the addresses, which are this machine's.
FILE = """
storage:
  segment_size: "1GB"
  segment_time: "24h"
  retention_time: "7d"
  retention_size: "100GB"
  fsync_interval: "1s"
performance:
  max_connections: 10000
  socket_send_buffer: "100KB"
  socket_receive_buffer: "100KB"
  max_message_size: "1MB"
replication:
  default_replication_factor: 3
  min_insync_replicas: 2
  replica_lag_time_max: "10s"
topics:
  gpu-telemetry:
    partitions: 12
    replication_factor: 3
    retention_time: "30d"
    retention_size: "500GB"
    compression_type: "snappy"
    cleanup_policy: "delete"
    segment_size: "1GB"
  system-metrics:
    partitions: 6
    replication_factor: 2
    retention_time: "7d"
    compression_type: "gzip"
"""
WANTED = {"gpu-telemetry": (12, 3), "system-metrics": (6, 2)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings={"cluster.session_timeout": "10s"}) as cluster:
        declare(cluster, tmp_path, FILE)
        yield cluster


def declare(cluster: ClusterProcesses, directory: Path, text: str) -> None:
    file = directory / "millstream.yaml"
    file.write_text(text)
    for node in cluster.nodes.values():
        if "--config" not in node.arguments:
            node.arguments += ["--config", str(file)]


def declared(cluster: ClusterProcesses, number: int) -> dict[str, tuple[int, int]]:
    """Partitions and replicas of the topics whose partitions are all led."""
    reply = cluster.ask(number, "metadata", 12, topics=None)
    return {
        topic.name: (len(topic.partitions), len(topic.partitions[0].replica_nodes))
        for topic in reply.topics
        if all(each.leader_id >= 0 for each in topic.partitions)
    }


def all_are_there(cluster: ClusterProcesses) -> None:
    for number, node in cluster.nodes.items():
        assert node.process is not None
        assert node.process.poll() is None, node.log_tail()
        eventually(
            lambda n=number: declared(cluster, n), lambda seen: seen.items() >= WANTED.items(), "the topics"
        )
        cluster.wait_in_sync("gpu-telemetry", 3)


# It waits for most of its time, and the next test starts them at other moments.
@pytest.mark.long
def test_three_seconds_apart(cluster: ClusterProcesses) -> None:
    for number in cluster.nodes:
        cluster.launch(number)
        time.sleep(3.0)
    all_are_there(cluster)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))])
def test_any_order_any_spacing_and_restarts_between(cluster: ClusterProcesses, seed: int) -> None:
    random = Random(seed)
    order = random.sample(list(cluster.nodes), 3)
    spacing = random.choice((0.0, 0.5, 2.0))
    for number in order:
        cluster.launch(number)
        time.sleep(random.uniform(0.0, 2 * spacing))
        victim = cluster.nodes[random.choice(order)]
        if victim.process is not None and random.random() < 0.7:
            victim.kill()
            time.sleep(random.uniform(0.0, 1.0))
            victim.launch()
    # Once more, at a moment when topics may be half made.
    victim = cluster.nodes[random.choice(order)]
    victim.kill()
    victim.launch()
    all_are_there(cluster)
    assert not [line for node in cluster.nodes.values() for line in node.log_entries("node ends")]


def test_a_file_that_changes_ends_no_node(cluster: ClusterProcesses, tmp_path: Path) -> None:
    cluster.start()
    all_are_there(cluster)
    changed = (
        FILE.replace("partitions: 12", "partitions: 14").replace("partitions: 6", "partitions: 4")
        + "    min_insync_replicas: 1\n  too-many:\n    replication_factor: 4\n  new: {}\n"
    )
    changed = changed.replace("replication_factor: 2", "replication_factor: 1")
    declare(cluster, tmp_path, changed)
    for node in cluster.nodes.values():
        node.stop()
    cluster.start()
    node = cluster.nodes[1]
    told = eventually(
        lambda: [str(each["difference"]) for each in node.log_entries("topic differs from settings")],
        lambda lines: len(lines) == 4,
        "a line for each difference",
    )
    for words in (
        "--partitions 14",
        "never gets fewer",
        "cluster reassign system-metrics",
        "min.insync.replicas=1",
    ):
        assert any(words in line for line in told), words
    # Of the others it may have said so when the cluster was young.
    (waiting,) = eventually(
        lambda: [
            each
            for each in node.log_entries("declared topic not created")
            if each["topic"] == "too-many" and each["cause"] == "too few brokers"
        ],
        bool,
        "a word about the wait",
    )
    assert "4 replicas need as many brokers, and 3 have come so far" in str(waiting["reason"])
    eventually(lambda: declared(cluster, 2), lambda seen: seen.get("new") == (1, 3), "the new topic")
    all_are_there(cluster)
