"""Clients that know one node of three, which forwards: nothing is lost, doubled or out of order, whoever dies."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from millstream.client import QueueAdmin
from millstream.runtime.ports import ReservedPorts
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.metrics import metric
from support.raw_client import RawClient, batch_of, produce

PARTITIONS = 6
# Longer than the default: the machine that runs the tests may be busy.
SETTINGS = {
    "cluster.session_timeout": "10s",
    "replication.placement": "balanced",
    "replication.min_insync_replicas": "2",
    "kafka.group.initial.rebalance.delay.ms": "0",
}

Write = Callable[[str, threading.Event], "dict[int, list[int]]"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        # The others say who leads in truth.
        cluster.nodes[1].arguments += ["--client-routing", "proxy"]
        yield cluster.start()


def create(bootstrap: str, topic: str, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(90)


def with_confluent(bootstrap: str, stop: threading.Event) -> dict[int, list[int]]:
    acked: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    errors: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            errors.append(error)
        else:
            acked[message.partition()].append(int(message.value()))  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
    number = 0
    while not stop.is_set():
        producer.produce("t", str(number), partition=number % PARTITIONS, on_delivery=delivered)
        number += 1
        producer.poll(0.001)
    assert producer.flush(60) == 0
    assert not errors
    return acked


def with_kafka_python(bootstrap: str, stop: threading.Event) -> dict[int, list[int]]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", linger_ms=2)
    sent = []
    number = 0
    while not stop.is_set():
        sent.append((number, producer.send("t", str(number).encode(), partition=number % PARTITIONS)))
        number += 1
        time.sleep(0.001)
    producer.flush(60)
    acked: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    for value, future in sent:
        acked[future.get(60).partition].append(value)
    producer.close()
    return acked


def with_aiokafka(bootstrap: str, stop: threading.Event) -> dict[int, list[int]]:
    async def run() -> dict[int, list[int]]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=2)
        await producer.start()
        sent = []
        number = 0
        while not stop.is_set():
            future = await producer.send("t", str(number).encode(), partition=number % PARTITIONS)
            sent.append((number, future))
            number += 1
            await asyncio.sleep(0.001)
        acked: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        for value, future in sent:
            acked[(await asyncio.wait_for(future, 60)).partition].append(value)
        await producer.stop()
        return acked

    return asyncio.run(run())


def read_all(bootstrap: str, counts: dict[int, int]) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", index, 0) for index in counts])
    found: dict[int, list[int]] = {index: [] for index in counts}
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and any(len(found[each]) < counts[each] for each in counts):
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                found[message.partition() or 0].append(int(message.value() or b""))
    # More would have come with the rest, or comes now.
    for message in consumer.consume(500, 0.5):
        found[message.partition() or 0].append(int(message.value() or b""))
    consumer.close()
    return found


@pytest.mark.parametrize(
    "write",
    [
        with_confluent,
        pytest.param(with_kafka_python, marks=pytest.mark.long),
        pytest.param(with_aiokafka, marks=pytest.mark.long),
    ],
)
def test_a_leader_is_killed_behind_the_only_node_a_client_knows(
    cluster: ClusterProcesses, write: Write
) -> None:
    bootstrap = cluster.nodes[1].listen
    create(bootstrap, "t")
    leaders = eventually(lambda: cluster.topics(3).get("t"), bool, "the topic")
    assert set(leaders or []) == {1, 2, 3}, "each node leads some"
    stop = threading.Event()
    results: list[dict[int, list[int]]] = []
    writing = threading.Thread(target=lambda: results.append(write(bootstrap, stop)))
    writing.start()
    try:
        eventually(
            lambda: metric(cluster.nodes[1], "millstream_forwarded_requests_total", api="produce"),
            lambda count: count > 5,
            "forwarded requests",
        )
        cluster.nodes[2].kill()
        eventually(lambda: cluster.topics(3)["t"], lambda seen: set(seen) == {1, 3}, "other leaders")
        time.sleep(0.5)
    finally:
        stop.set()
        writing.join(120)
    (acked,) = results
    assert min(map(len, acked.values())) > 0
    found = read_all(bootstrap, {index: len(values) for index, values in acked.items()})
    for index, values in acked.items():
        assert found[index] == sorted(values), f"partition {index}: all of it, once, in order"


def test_three_clients_do_everything_through_one_node(cluster: ClusterProcesses) -> None:
    bootstrap = cluster.nodes[1].listen
    create(bootstrap, "t", replicas=1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    known = admin.list_topics(timeout=90)
    assert list(known.brokers) == [1], "clients are told of this node only"
    assert {each.leader for each in known.topics["t"].partitions.values()} == {1}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "enable.idempotence": False})
    for number in range(300):
        producer.produce("t", str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0

    assert _in_group_with_confluent(bootstrap, "confluent", "classic") == set(range(300))
    assert _in_group_with_confluent(bootstrap, "confluent-848", "consumer") == set(range(300))
    assert _in_group_with_kafka_python(bootstrap) == set(range(300))
    assert asyncio.run(_in_group_with_aiokafka(bootstrap)) == set(range(300))

    groups = ["confluent", "confluent-848", "kafka-python", "aiokafka"]
    listed = admin.list_consumer_groups().result(90)
    assert {each.group_id for each in listed.valid} >= set(groups)
    assert not listed.errors
    described = admin.describe_consumer_groups(["confluent", "kafka-python"])
    assert {future.result(90).coordinator.id for future in described.values()} == {1}
    for future in admin.delete_consumer_groups(groups).values():
        future.result(90)
    ends = {
        index: Consumer({"bootstrap.servers": bootstrap, "group.id": "x"}).get_watermark_offsets(
            TopicPartition("t", index), timeout=90
        )
        for index in range(PARTITIONS)
    }
    assert set(ends.values()) == {(0, 50)}


def test_a_further_port_for_those_who_reach_one_node_only(tmp_path: Path) -> None:
    with ReservedPorts() as further, cluster_of(tmp_path, settings=SETTINGS) as cluster:
        (address,) = further.addresses
        cluster.nodes[3].environment |= {
            "MILLSTREAM_BROKER_PROXY_LISTEN": address,
            "MILLSTREAM_BROKER_CLIENT_ADDRESS": "queue.example.org:9999",
        }
        cluster.start()
        create(cluster.nodes[1].listen, "t", replicas=1)
        eventually(lambda: "t" in cluster.topics(3), bool, "the topic")
        assert len(cluster.ask(3, "metadata", 12, topics=[]).brokers) == 3, "others go where they went"
        with RawClient(address) as client:
            (told,) = client.call("metadata", 12, topics=[]).brokers
            assert (told.node_id, told.host, told.port) == (1, "queue.example.org", 9999)
            for partition in range(PARTITIONS):
                # Its leader may be the last one to hear of the topic.
                eventually(
                    lambda p=partition: produce(client, "t", batch_of(b"x"), partition=p).error_code,
                    lambda code: code == 0,
                    f"a record in partition {partition}",
                )


def _in_group_with_confluent(bootstrap: str, group: str, protocol: str) -> set[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    seen: set[int] = set()
    deadline = time.monotonic() + 120
    while len(seen) < 300 and time.monotonic() < deadline:
        seen |= {int(each.value() or b"") for each in consumer.consume(100, 0.2) if each.error() is None}
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition("t", index) for index in range(PARTITIONS)], timeout=90)
    assert {each.offset for each in committed} == {50}
    consumer.close()
    return seen


def _in_group_with_kafka_python(bootstrap: str) -> set[int]:
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=bootstrap,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=90_000,
    )
    seen: set[int] = set()
    for message in consumer:
        seen.add(int(message.value))
        if len(seen) == 300:
            break
    consumer.commit()
    consumer.close()
    return seen


async def _in_group_with_aiokafka(bootstrap: str) -> set[int]:
    consumer = AIOKafkaConsumer(
        "t", bootstrap_servers=bootstrap, group_id="aiokafka", auto_offset_reset="earliest"
    )
    await consumer.start()
    seen: set[int] = set()
    async with asyncio.timeout(90):
        while len(seen) < 300:
            seen.add(int((await consumer.getone()).value))
    await consumer.commit()
    await consumer.stop()
    return seen


def test_a_share_consumer_gets_the_messages_of_all_partitions(cluster: ClusterProcesses) -> None:
    """And what it leaves behind goes to others, through a node that knows who leads what."""
    bootstrap = cluster.nodes[1].bootstrap
    create(bootstrap, "shared")
    with QueueAdmin(bootstrap) as admin:
        admin.alter_group_configs("workers", {"share.auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10 * PARTITIONS):
        producer.produce("shared", str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    accepted: set[int] = set()
    left: set[int] = set()

    def consume(at: str, enough: Callable[[], bool], taken: set[int], *, accepts: bool) -> None:
        consumer = ShareConsumer(
            {"bootstrap.servers": at, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
        )
        consumer.subscribe(["shared"])
        deadline = time.monotonic() + 90
        while not enough():
            assert time.monotonic() < deadline, f"{len(taken)} messages were delivered"
            for message in consumer.poll(1.0):
                assert message.error() is None
                assert int(message.value()) not in accepted
                taken.add(int(message.value()))
                if accepts:
                    consumer.acknowledge(message, 1)
            if accepts:
                assert all(error is None for error in consumer.commit_sync(timeout=60).values())
        consumer.close()

    consume(bootstrap, lambda: bool(left), left, accepts=False)
    consume(bootstrap, lambda: len(accepted) >= 9 * PARTITIONS, accepted, accepts=True)
    consume(cluster.nodes[2].bootstrap, lambda: len(accepted) == 10 * PARTITIONS, accepted, accepts=True)
