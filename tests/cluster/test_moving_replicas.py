"""Partitions move between real nodes while they are written to: nothing is lost, and leaders end where they belong."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

from millstream.admin import nodes
from millstream.admin.moves import move
from millstream.cli.main import main
from support.acked_writes import AckedWriter, judge, read_numbers
from support.cli import Cli
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.node import NodeProcess

SETTINGS = {"cluster.session_timeout": "10s", "replication.placement": "balanced"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        yield cluster.start()


def create(cluster: ClusterProcesses, name: str, *assignments: tuple[int, ...]) -> None:
    wanted = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": replicas} for index, replicas in enumerate(assignments)
        ],
    }
    (created,) = cluster.ask(1, "create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0, created.error_message


def partitions(cluster: ClusterProcesses, name: str, via: int = 1) -> list[Any]:
    for topic in cluster.ask(via, "metadata", 12, topics=None).topics:
        if topic.name == name:
            return sorted(topic.partitions, key=lambda each: each.partition_index)
    return []


def everywhere(cluster: ClusterProcesses, name: str, replicas: list[list[int]]) -> None:
    """Until every node knows that these are the replicas, all in sync."""
    for number in cluster.nodes:
        eventually(
            lambda via=number: [
                (sorted(each.replica_nodes), sorted(each.isr_nodes))
                for each in partitions(cluster, name, via)
            ],
            lambda seen: seen == [(wanted, wanted) for wanted in replicas],
            f"the replicas {replicas}, seen by node {number}",
        )


def leaders_become(cluster: ClusterProcesses, name: str, leaders: list[int], via: int = 1) -> None:
    eventually(
        lambda: [each.leader_id for each in partitions(cluster, name, via)],
        lambda seen: seen == leaders,
        f"the leaders {leaders}",
    )


def test_replicas_move_under_load_and_the_leader_with_them(cluster: ClusterProcesses) -> None:
    create(cluster, "t", (1, 2), (1, 2))
    cli = Cli(cluster.seeds)
    with AckedWriter(cluster.seeds, "t", 2) as writer:
        writer.wait_for(200)
        assert cli.json("cluster", "reassign", "t:1", "--replicas", "1")["done"]
        assert cli.json("cluster", "reassign", "t:0", "--replicas", "1,2,3")["done"]
        writer.wait_for(100)
        # The next command may ask another node.
        everywhere(cluster, "t", [[1, 2, 3], [1]])
        moved = cli.json("cluster", "reassign", "t", "--replicas", "3,2", "--throttle", "50MB")
        assert [each["from"] for each in moved["moves"]] == [[1, 2, 3], [1]]
        writer.wait_for(100)
    everywhere(cluster, "t", [[2, 3], [2, 3]])
    for each in partitions(cluster, "t"):
        assert each.leader_id in (2, 3)
    judge(writer, read_numbers(cluster.seeds, "t", 2))
    assert not writer.errors
    eventually(lambda: cli.json("cluster", "reassign"), lambda moves: moves == [], "no moves")
    eventually(
        lambda: "throttled" not in cli.ok("topic", "describe", "t").decode(),
        bool,
        "the end of the limit of speed with that of the move",
    )


def test_preferred_leaders_are_elected_by_a_kafka_client(cluster: ClusterProcesses) -> None:
    create(cluster, "t", (1, 2, 3), (2, 3, 1))
    cluster.nodes[1].restart()
    everywhere(cluster, "t", [[1, 2, 3]] * 2)
    assert [each.leader_id for each in partitions(cluster, "t", 2)] == [2, 2]
    admin = AdminClient({"bootstrap.servers": cluster.seeds})
    wanted = [TopicPartition("t", 0), TopicPartition("t", 1)]
    outcome = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(90)
    errors = {place.partition: error for place, error in outcome.items()}
    assert errors[0] is None
    assert errors[1] is not None
    assert errors[1].name() == "ELECTION_NOT_NEEDED"
    leaders_become(cluster, "t", [1, 2])


def test_kafka_python_moves_replicas_too(cluster: ClusterProcesses) -> None:
    create(cluster, "t", (1, 2), (2, 3))
    admin = KafkaAdminClient(bootstrap_servers=cluster.seeds.split(","))
    try:
        places = [kafka.TopicPartition("t", 0), kafka.TopicPartition("t", 1)]
        admin.alter_partition_reassignments({places[0]: [3, 1], places[1]: [2, 1]})
        everywhere(cluster, "t", [[1, 3], [1, 2]])
        eventually(admin.list_partition_reassignments, lambda moves: not moves, "no moves")
        admin.elect_leaders(0)
        leaders_become(cluster, "t", [3, 2])
    finally:
        admin.close()


def test_leadership_goes_back_by_itself(tmp_path: Path) -> None:
    settings = {**SETTINGS, "replication.leader_imbalance_check_seconds": "1"}
    with cluster_of(tmp_path, settings=settings) as cluster:
        cluster.start()
        create(cluster, "t", (1, 2, 3))
        cluster.nodes[1].restart()
        leaders_become(cluster, "t", [1], via=2)


@pytest.mark.long
def test_a_node_comes_takes_its_share_and_another_leaves_with_nothing_lost(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    create(cluster, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    cli = Cli(cluster.seeds)
    home = tmp_path / "four"
    home.mkdir()
    fourth = NodeProcess(home, ["--node-id", "4", "--seeds", cluster.seeds], settings=SETTINGS)
    try:
        with AckedWriter(cluster.seeds, "t", 3) as writer:
            writer.wait_for(200)
            fourth.start()
            cli.ok("cluster", "add", "4")
            plan = cli.json("cluster", "rebalance", "--placement", "balanced", "--dry-run")
            assert any(4 in each["replicas"] for each in plan["partitions"])
            assert cli.json("cluster", "rebalance", "--placement", "balanced")["done"]
            writer.wait_for(100)
            removed = cli.json("cluster", "remove", "2", "--yes")
            assert removed["node"] == 2
            writer.wait_for(100)
        rest = f"{cluster.nodes[1].listen},{cluster.nodes[3].listen},{fourth.listen}"
        judge(writer, read_numbers(rest, "t", 3))
        assert not writer.errors
        eventually(
            lambda: [sorted(each.replica_nodes) for each in partitions(cluster, "t", 3)],
            lambda seen: seen == [[1, 3, 4]] * 3,
            "the replicas",
        )
        eventually(lambda: Cli(rest).json("cluster", "status", "--check")["healthy"], bool, "good health")
        process = cluster.nodes[2].process
        assert process is not None
        eventually(process.poll, lambda code: code is not None, "the end of the removed node")
    finally:
        fourth.close()


def test_a_topic_that_comes_to_a_node_while_it_is_removed_is_not_lost(
    cluster: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cluster, "t", (3,))
    everywhere(cluster, "t", [[3]])
    refused = Cli(cluster.seeds).fails("cluster", "remove", "3", "--force", "--yes", "--timeout", "1")
    assert "broker 3 is alive, and it alone has everything of t-0" in refused

    late = iter(["late"])

    def move_and_create(*arguments: Any, **options: Any) -> None:
        move(*arguments, **options)
        for name in late:
            create(cluster, name, (3,))

    monkeypatch.setattr(nodes, "move", move_and_create)
    rest = f"{cluster.nodes[1].listen},{cluster.nodes[2].listen}"
    assert main(["cluster", "remove", "3", "--yes", "--bootstrap", rest]) == 0
    for topic in ("t", "late"):
        eventually(
            lambda name=topic: [(each.leader_id, *each.isr_nodes) for each in partitions(cluster, name)],
            lambda seen: seen in ([(1, 1)], [(2, 2)]),
            f"another node that leads {topic}",
        )


def test_a_node_that_was_away_when_it_was_removed_ends_when_it_is_back(cluster: ClusterProcesses) -> None:
    process = cluster.nodes[3].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        cli = Cli(f"{cluster.nodes[1].listen},{cluster.nodes[2].listen}")
        assert cli.json("cluster", "remove", "3", "--force", "--yes") == {"node": 3, "moved": 0}
    finally:
        process.send_signal(signal.SIGCONT)
    eventually(process.poll, lambda code: code is not None, "the end of the removed node")


def test_a_node_that_lost_its_disk_is_removed_and_comes_back_empty(cluster: ClusterProcesses) -> None:
    create(cluster, "t", (1, 2, 3))
    with AckedWriter(cluster.seeds, "t", 1) as writer:
        writer.wait_for(100)
        cluster.nodes[3].kill()
        for path in sorted(cluster.nodes[3].data_dir.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        cli = Cli(f"{cluster.nodes[1].listen},{cluster.nodes[2].listen}")
        assert cli.json("cluster", "remove", "3", "--force", "--yes") == {"node": 3, "moved": 0}
        cluster.nodes[3].start()
        writer.wait_for(100)
        eventually(
            lambda: sorted(partitions(cluster, "t")[0].isr_nodes),
            lambda seen: seen == [1, 2, 3],
            "all in sync",
        )
        # It has a vote again a moment later; until then nodes 1 and 2 are the quorum, and both are needed.
        eventually(
            lambda: [each["quorum"] for each in cli.json("cluster", "status")["brokers"] if each["id"] == 3],
            lambda seen: seen in (["voter"], ["leader"]),
            "a vote for node 3",
        )
        cluster.nodes[1].kill()
        writer.wait_for(100)
    rest = f"{cluster.nodes[2].listen},{cluster.nodes[3].listen}"
    judge(writer, read_numbers(rest, "t", 1))
    assert not writer.errors
