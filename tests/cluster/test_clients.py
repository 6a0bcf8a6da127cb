"""Records and groups on three nodes: clients find the node that has what they want."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.cluster.raft.envelope import encode_parts
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import Heartbeat
from millstream.protocol.api import PEER_COMMAND, PEER_QUORUM
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.raw_client import RawClient, batch_of, node_address, produce

NOT_LEADER_OR_FOLLOWER = 6

# Longer than the default: the machine that runs the tests may be busy.
SETTINGS = {"cluster.session_timeout": "10s", "replication.placement": "balanced"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        yield cluster.start()


def write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    errors: list[object] = []
    for number in range(count):
        producer.produce(
            topic, key=str(number), value=str(number), on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(60) == 0
    assert errors == [None] * count


def read(bootstrap: str, topic: str, group: str, count: int) -> set[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: set[int] = set()
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.add(int(message.value() or b""))
            if len(seen) == count:
                break
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return seen


@pytest.mark.long
def test_clients_write_and_read_through_any_node_and_groups_keep_their_place(
    cluster: ClusterProcesses,
) -> None:
    bootstraps = {number: node.listen for number, node in cluster.nodes.items()}
    admin = AdminClient({"bootstrap.servers": bootstraps[3]})
    admin.create_topics([NewTopic("orders", 9, 1)])["orders"].result(90)
    leaders = eventually(lambda: cluster.topics(1).get("orders"), bool, "the topic")
    assert sorted(leaders or []) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    write(bootstraps[1], "orders", 300)
    for number in cluster.nodes:
        assert read(bootstraps[number], "orders", f"group-{number}", 300) == set(range(300))
    write(bootstraps[2], "orders", 300)
    assert len(read(bootstraps[2], "orders", "group-1", 300)) == 300
    for node in cluster.nodes.values():
        node.restart()
    assert read(bootstraps[1], "orders", "new", 300) == set(range(300))


def test_a_node_that_does_not_keep_a_partition_says_so(cluster: ClusterProcesses) -> None:
    wanted = {"name": "t", "num_partitions": 3, "replication_factor": 1}
    assert cluster.ask(1, "create_topics", 7, topics=[wanted]).topics[0].error_code == 0
    for number in cluster.nodes:
        leaders = eventually(lambda n=number: cluster.topics(n).get("t"), bool, "the topic")
        with RawClient(cluster.nodes[number].listen) as client:
            for partition, leader in enumerate(leaders or []):
                eventually(
                    lambda p=partition: produce(client, "t", batch_of(b"x"), partition=p).error_code,
                    lambda code: code == (0 if leader == number else NOT_LEADER_OR_FOLLOWER),  # noqa: B023
                    f"node {number}'s answer",
                )


def test_more_replicas_than_brokers_are_refused(cluster: ClusterProcesses) -> None:
    wanted = {"name": "t", "num_partitions": 1, "replication_factor": 4}
    (refused,) = cluster.ask(2, "create_topics", 7, topics=[wanted]).topics
    assert refused.error_code == 38
    assert "only 3 broker(s) are registered" in (refused.error_message or "")


@pytest.mark.long
def test_stopping_a_node_that_waits_for_the_others_costs_nothing(cluster: ClusterProcesses) -> None:
    wanted = {"name": "kept", "num_partitions": 6, "replication_factor": 1}
    assert cluster.ask(1, "create_topics", 7, topics=[wanted]).topics[0].error_code == 0
    write(cluster.nodes[1].listen, "kept", 100)
    for node in cluster.nodes.values():
        node.stop()
    waiting = cluster.nodes[1]
    waiting.launch()
    eventually(
        lambda: [
            each
            for each in waiting.log_entries("waiting")
            if each["awaited"] == "a majority of the cluster's nodes"
        ],
        bool,
        "a word about the wait",
    )
    waiting.stop()
    cluster.start()
    assert read(cluster.nodes[2].listen, "kept", "g", 100) == set(range(100))


def test_what_no_node_of_the_cluster_would_send_ends_the_connection(cluster: ClusterProcesses) -> None:
    node = cluster.nodes[1]
    stranger = MemberKey(9, UUID(int=9))
    (foreign,) = encode_parts("x" * 22, 1, Heartbeat(stranger, stranger, 99, 0, 0))
    cluster_id = cluster.ask(1, "describe_cluster", 1).cluster_id
    (good,) = encode_parts(cluster_id, 1, Heartbeat(stranger, stranger, 99, 0, 0))
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    for key, body in ((PEER_QUORUM, foreign), (PEER_QUORUM, damaged), (PEER_COMMAND, b"\xff")):
        with RawClient(node_address(node.listen)) as client:
            client.send_bytes(struct.pack(">ihhih", 10 + len(body), key, 0, 1, -1) + body)
            assert client.is_closed_by_broker()
    eventually(
        lambda: " ".join(str(entry["reason"]) for entry in node.log_entries("connection closed")),
        lambda reasons: "of cluster 'xxxxxxxxxxxxxxxxxxxxxx'" in reasons and "checksum" in reasons,
        "the reasons in the log",
    )
    cluster.wait_for_brokers(1, 2, 3)
