"""One producer and one consumer of librdkafka with a topic that nodes forward and one whose leaders it goes to."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from millstream.client import QueueAdmin
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.metrics import metric

PARTITIONS = 6
PROXIED, DIRECT = "proxied", "direct"
SETTINGS = {
    "cluster.session_timeout": "10s",
    "replication.min_insync_replicas": "2",
    "kafka.group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = [
            NewTopic(PROXIED, PARTITIONS, 3, config={"client.routing": "proxy"}),
            NewTopic(DIRECT, PARTITIONS, 3),
        ]
        for created in admin.create_topics(wanted).values():
            created.result(90)
        for number in cluster.nodes:
            eventually(lambda n=number: cluster.topics(n), lambda seen: len(seen) == 2, "the topics")
        yield cluster


def set_routing(cluster: ClusterProcesses, topic: str, value: str) -> None:
    change = ConfigEntry("client.routing", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(90)


def forwarded(cluster: ClusterProcesses, api: str) -> float:
    return sum(
        metric(node, "millstream_forwarded_requests_total", api=api) for node in cluster.nodes.values()
    )


class Writer:
    """Idempotent. It often asks who leads, any node: for the proxied topic each names itself."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for topic in (PROXIED, DIRECT):
                self._producer.produce(
                    topic, str(number), partition=number % PARTITIONS, on_delivery=self._told
                )
            number += 1
            self._producer.poll(0.001)
            while len(self._producer) > 500 and not self._stop.is_set():
                self._producer.poll(0.01)
        assert self._producer.flush(90) == 0

    def _told(self, error: object, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acked[message.topic() or "", message.partition() or 0].append(int(message.value() or b""))

    def end(self) -> dict[tuple[str, int], list[int]]:
        self._stop.set()
        self._thread.join(180)
        assert not self.errors
        return self.acked


@pytest.mark.parametrize(
    "victim",
    [None, pytest.param(2, marks=pytest.mark.long)],  # tests/cluster/test_proxy.py kills leaders in make test
)
def test_topics_of_both_kinds_at_once_and_a_change_of_kind(
    cluster: ClusterProcesses, victim: int | None
) -> None:
    """All that was acknowledged is there once and in order, however the leader that a client is told of changes."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "both",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    consumer.subscribe([PROXIED, DIRECT])
    found: dict[tuple[str, int], list[int]] = defaultdict(list)

    def consume(seconds: float) -> None:
        for message in consumer.consume(500, seconds):
            assert message.error() is None, message.error()
            found[message.topic() or "", message.partition() or 0].append(int(message.value() or b""))

    writer = Writer(cluster.bootstrap)
    try:
        deadline = time.monotonic() + 90
        while forwarded(cluster, "produce") < 20 or forwarded(cluster, "fetch") < 5:
            assert time.monotonic() < deadline, "nothing is forwarded"
            consume(0.1)
        for topic, routing in (
            (PROXIED, "direct"),
            (DIRECT, "proxy"),
            (PROXIED, "proxy"),
            (DIRECT, "direct"),
        ):
            set_routing(cluster, topic, routing)
            if victim is not None and topic == DIRECT:
                cluster.nodes[victim].kill() if routing == "proxy" else cluster.nodes[victim].start()
            before = sum(map(len, writer.acked.values()))
            while sum(map(len, writer.acked.values())) < before + 300:
                assert time.monotonic() < deadline + 120, "the producer stands still"
                consume(0.1)
    finally:
        acked = writer.end()
    deadline = time.monotonic() + 120
    while any(len(found[place]) < len(values) for place, values in acked.items()):
        assert time.monotonic() < deadline, "messages do not come"
        consume(0.2)
    # More would have come with the rest, or comes now.
    consume(0.5)
    consumer.close()
    assert len(acked) == 2 * PARTITIONS
    for place, values in acked.items():
        assert found[place] == sorted(values), f"{place}: all of it, once, in order"


def test_a_share_consumer_of_topics_of_both_kinds(cluster: ClusterProcesses) -> None:
    with QueueAdmin(cluster.bootstrap) as admin:
        admin.alter_group_configs("workers", {"share.auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(60):
        for topic in (PROXIED, DIRECT):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(90) == 0
    consumer = ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([PROXIED, DIRECT])
    accepted: set[tuple[str, int]] = set()
    deadline = time.monotonic() + 90
    while len(accepted) < 120:
        assert time.monotonic() < deadline, f"{len(accepted)} messages were delivered"
        for message in consumer.poll(1.0):
            assert message.error() is None
            accepted.add((message.topic(), int(message.value())))
            consumer.acknowledge(message, 1)
        assert all(error is None for error in consumer.commit_sync(timeout=60).values())
    consumer.close()
