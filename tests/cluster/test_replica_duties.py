"""What replicas do beside keeping records: groups move with their leaders, near readers, deletions, repairs."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.raw_client import RawClient, batch_of, fetch_fields, fetched_partitions, produce, produce_fields

SETTINGS = {"cluster.session_timeout": "10s", "replication.placement": "balanced"}
NOT_ENOUGH_REPLICAS = 19


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        for number, node in cluster.nodes.items():
            node.environment["MILLSTREAM_BROKER_RACK"] = f"rack-{number}"
        yield cluster.start()


def create(cluster: ClusterProcesses, name: str = "t", **configs: str) -> int:
    """A topic of one partition at all three; its leader."""
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 3, "configs": settings}
    (created,) = cluster.ask(1, "create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0, created.error_message
    return in_sync(cluster, name)


def in_sync(cluster: ClusterProcesses, name: str = "t", count: int = 3, via: int = 1) -> int:
    def look() -> tuple[int, int]:
        for topic in cluster.ask(via, "metadata", 12, topics=None).topics:
            if topic.name == name:
                return len(topic.partitions[0].isr_nodes), topic.partitions[0].leader_id
        return 0, -1

    _, leader = eventually(look, lambda seen: seen[0] == count and seen[1] > 0, f"{count} replicas in sync")
    return leader


def bootstrap(cluster: ClusterProcesses) -> str:
    return ",".join(node.listen for node in cluster.nodes.values())


def others(cluster: ClusterProcesses, *gone: int) -> list[int]:
    return [number for number in cluster.nodes if number not in gone]


def test_a_group_keeps_its_place_when_its_coordinator_is_killed(cluster: ClusterProcesses) -> None:
    create(cluster)
    settings = {
        "bootstrap.servers": bootstrap(cluster),
        "group.id": "g",
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.max.ms": 200,
    }
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("t", 0, 41)], asynchronous=False)
    in_sync(cluster, "__consumer_offsets")

    def coordinator(via: int) -> int:
        found = cluster.ask(via, "find_coordinator", 4, key_type=0, coordinator_keys=["g"]).coordinators[0]
        return int(found.node_id)

    killed = eventually(lambda: coordinator(1), lambda seen: seen in cluster.nodes, "a coordinator")
    cluster.nodes[killed].kill()
    survivor = others(cluster, killed)[0]
    eventually(lambda: coordinator(survivor), lambda seen: seen not in (-1, killed), "another coordinator")
    other = Consumer(settings)
    (place,) = other.committed([TopicPartition("t", 0)], 90)
    assert place.offset == 41
    other.commit(offsets=[TopicPartition("t", 0, 42)], asynchronous=False)
    (place,) = other.committed([TopicPartition("t", 0)], 90)
    assert place.offset == 42
    other.close()
    consumer.close()


def test_a_reader_is_sent_to_the_replica_in_its_rack_and_served_there(cluster: ClusterProcesses) -> None:
    leader = create(cluster)
    near = others(cluster, leader)[0]
    with RawClient(cluster.nodes[leader].listen) as client:
        assert produce(client, "t", batch_of(b"hello")).error_code == 0
        assert produce(client, "t", batch_of(b"again")).error_code == 0

    def at(number: int, rack: str) -> tuple[int, int, int]:
        with RawClient(cluster.nodes[number].listen) as client:
            (found,) = fetched_partitions(client.call("fetch", 12, **fetch_fields("t", 0), rack_id=rack))
        return found.error_code, found.preferred_read_replica, len(found.records or b"")

    eventually(
        lambda: at(leader, f"rack-{near}"), lambda seen: seen == (0, near, 0), "the way to the near one"
    )
    eventually(
        lambda: at(near, f"rack-{near}"), lambda seen: seen[:2] == (0, -1) and seen[2] > 100, "records"
    )
    eventually(lambda: at(leader, f"rack-{leader}")[2], lambda size: size > 100, "records at the leader")
    assert at(near, "")[0] == 6, "who does not say where it is reads from the leader"


def test_too_few_replicas_refuse_all_and_take_one(cluster: ClusterProcesses) -> None:
    leader = create(cluster, min_insync_replicas="3")
    killed = others(cluster, leader)[0]
    cluster.nodes[killed].kill()
    in_sync(cluster, count=2, via=leader)
    with RawClient(cluster.nodes[leader].listen) as client:
        assert produce(client, "t", batch_of(b"x")).error_code == NOT_ENOUGH_REPLICAS
        reply = client.call("produce", 9, **produce_fields("t", batch_of(b"y"), acks=1))
        assert reply.responses[0].partition_responses[0].error_code == 0
    cluster.nodes[killed].start()
    in_sync(cluster, via=leader)
    with RawClient(cluster.nodes[leader].listen) as client:
        assert produce(client, "t", batch_of(b"z")).error_code == 0


def test_deleted_records_are_gone_at_every_replica(cluster: ClusterProcesses) -> None:
    leader = create(cluster)
    with RawClient(cluster.nodes[leader].listen) as client:
        for _ in range(10):
            assert produce(client, "t", batch_of(b"x")).error_code == 0
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
    (deleted,) = admin.delete_records([TopicPartition("t", 0, 7)]).values()
    assert deleted.result(90).low_watermark == 7
    for node in cluster.nodes.values():
        # Written with the next flush after the answer.
        file = node.partition_dir("t") / "log-start-offset-checkpoint"
        eventually(file.exists, bool, "the file with the log's start")
        eventually(lambda f=file: f.read_text().split()[1], lambda start: start == "7", "the start")


def test_a_damaged_segment_is_repaired_from_another_replica(cluster: ClusterProcesses) -> None:
    leader = create(cluster, segment_bytes="20000", flush_ms="1000")
    # Small batches, of which there are several in a segment, and several segments.
    with AckedWriter(bootstrap(cluster), "t", 1, pause_s=0, **{"batch.num.messages": 100}) as writer:
        writer.wait_for(3000)
    node = cluster.nodes[leader]
    # How many there are depends on how the producer batched; the last one may be nearly empty.
    sealed = sorted(node.partition_dir("t").glob("*.log"))[:-1]
    damaged = sealed[len(sealed) // 2]
    data = bytearray(damaged.read_bytes())
    data[200] ^= 0xFF
    with damaged.open("r+b") as file:
        file.write(data)
    judge(writer, read_numbers(bootstrap(cluster), "t", 1))
    assert node.log_entries("corrupt record batch")
    eventually(
        lambda: node.log_entries("damaged segment repaired from another replica"), bool, "a word about it"
    )
    # The repaired segment is as good as any other after a crash.
    node.kill()
    node.start()
    in_sync(cluster, via=leader)
    judge(writer, read_numbers(node.listen, "t", 1))


def test_a_lost_directory_of_a_partition_is_filled_again(cluster: ClusterProcesses) -> None:
    leader = create(cluster)
    with AckedWriter(bootstrap(cluster), "t", 1) as writer:
        writer.wait_for(100)
        lost = others(cluster, leader)[0]
        cluster.nodes[lost].kill()
        for file in cluster.nodes[lost].partition_dir("t").iterdir():
            file.unlink()
        cluster.nodes[lost].start()
        in_sync(cluster, via=leader)
        writer.wait_for(20)
        # Now it has to be as good as the others.
        process = cluster.nodes[leader].process
        assert process is not None
        process.send_signal(signal.SIGKILL)
        writer.wait_for(100)
    judge(writer, read_numbers(bootstrap(cluster), "t", 1))
