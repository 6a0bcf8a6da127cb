"""Queues through several gateways and beside Kafka's own consumers: any gateway takes any acknowledgement."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import ShareConsumer

from millstream.client import QueueAdmin
from support.cluster import ClusterProcesses, cluster_of
from support.gateway import GatewayAlone
from support.sse import Events
from support.waiting import wait_for

QUICK = {"HEALTH_INTERVAL_SECONDS": "1", "MILLSTREAM_PROXY_RELEASE_DELAY": "200ms"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster_of(
        tmp_path_factory.mktemp("cluster"), settings={"cluster.session_timeout": "10s"}
    ) as cluster:
        yield cluster.start()


class Collector:
    """Reads a stream through one gateway and acknowledges through another, until it is killed."""

    def __init__(self, read_from: str, ack_at: str, topic: str, group: str) -> None:
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._events: Events | None = None
        self._thread = threading.Thread(target=self._run, args=(read_from, ack_at, topic, group), daemon=True)
        self._thread.start()

    def _run(self, read_from: str, ack_at: str, topic: str, group: str) -> None:
        with httpx.Client(base_url=ack_at, timeout=90) as acks:
            while not self._stop.is_set():
                try:
                    with (
                        httpx.Client(base_url=read_from, timeout=90) as reads,
                        Events(reads, topic=topic, group=group, permits=20) as events,
                    ):
                        self._events = events
                        while not self._stop.is_set():
                            self._take(acks, group, events.next())
                except (httpx.HTTPError, AssertionError, KeyError):
                    continue

    def _take(self, acks: httpx.Client, group: str, message: dict[str, Any]) -> None:
        if self._stop.is_set():
            return
        answer = acks.post("/ack", params={"group": group}, json={"id": message["id"]})
        if answer.text == "ok":
            self.acknowledged.append(message["payload"])

    def kill(self) -> None:
        self._stop.set()
        if self._events is not None:
            self._events.cut()
        self._thread.join(90)


def produce(client: httpx.Client, topic: str, first: int, count: int) -> list[str]:
    payloads = [f"m{number}" for number in range(first, first + count)]
    some = [{"payload": payload, "key": payload} for payload in payloads]
    answer = client.post(f"/produce?topic={topic}", json=some)
    assert answer.status_code == 200, answer.text
    return payloads


def test_streams_and_acknowledgements_may_go_through_different_gateways(
    tmp_path: Path, cluster: ClusterProcesses
) -> None:
    cluster.create_topic("crossed", 6)
    with (
        GatewayAlone(tmp_path / "one", cluster.seeds, QUICK) as one,
        GatewayAlone(tmp_path / "two", cluster.seeds, QUICK) as two,
    ):
        for gateway in (one, two):
            gateway.wait_healthy(3)
        urls = [f"http://{one.address}", f"http://{two.address}"]
        collectors = [Collector(urls[n % 2], urls[(n + 1) % 2], "crossed", "g") for n in range(4)]
        # More than a stream may hold unacknowledged: the windows move although the acknowledgements go elsewhere.
        sent = produce(one.client, "crossed", 0, 240)

        def acknowledged() -> list[str]:
            return [payload for each in collectors for payload in each.acknowledged]

        wait_for(lambda: len(acknowledged()), lambda seen: seen >= 60, "a part of it", 240)
        collectors[0].kill()
        wait_for(lambda: len(acknowledged()), lambda seen: seen >= len(sent), "all of it", 240)
        for each in collectors:
            each.kill()
        assert sorted(acknowledged()) == sorted(sent), "each once"


def test_http_and_kafka_consumers_share_a_group(tmp_path: Path, cluster: ClusterProcesses) -> None:
    cluster.create_topic("shared", 3)
    with QueueAdmin(cluster.bootstrap) as admin:
        admin.alter_group_configs("g", {"share.auto.offset.reset": "earliest"})
    kafka = ShareConsumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "share.acknowledgement.mode": "explicit"}
    )
    kafka.subscribe(["shared"])
    by_kafka: list[str] = []
    sent: list[str] = []
    with GatewayAlone(tmp_path / "gateway", cluster.seeds, QUICK) as gateway:
        gateway.wait_healthy(3)
        url = f"http://{gateway.address}"
        by_http = Collector(url, url, "shared", "g")
        try:
            # Until each has had some, and all that was sent is acknowledged by one of them.
            while not (by_http.acknowledged and by_kafka) or len(by_http.acknowledged) + len(by_kafka) < len(
                sent
            ):
                if not (by_http.acknowledged and by_kafka):
                    sent += produce(gateway.client, "shared", len(sent), 50)
                for message in kafka.poll(timeout=0.5):
                    assert message.error() is None
                    by_kafka.append(message.value().decode())
                    kafka.acknowledge(message, 1)
                kafka.commit_sync(timeout=60)
        finally:
            kafka.close()
            by_http.kill()
        assert sorted(by_http.acknowledged + by_kafka) == sorted(sent), "each to one of them"


def test_an_acknowledgement_is_taken_after_the_gateway_of_its_message_was_killed(
    tmp_path: Path, cluster: ClusterProcesses
) -> None:
    cluster.create_topic("orphaned", 3)
    with (
        GatewayAlone(tmp_path / "one", cluster.seeds, QUICK) as one,
        GatewayAlone(tmp_path / "two", cluster.seeds, QUICK) as two,
    ):
        for gateway in (one, two):
            gateway.wait_healthy(3)
        sent = produce(two.client, "orphaned", 0, 10)
        with Events(one.client, topic="orphaned", group="g") as events:
            taken = [events.next() for _ in sent]
            one.kill()
        assert sorted(each["payload"] for each in taken) == sorted(sent)
        ids = [each["id"] for each in taken]
        assert two.client.post("/ack?group=g", json={"ids": ids}).text == "ok"
        (depth,) = {row["depth"] for row in two.client.get("/admin/queues?group=g").json()["queues"]}
        assert depth == 0, "none comes again"


KAFKA_CONSUMER = """
import sys, time
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                          "share.acknowledgement.mode": "explicit"})
consumer.subscribe([sys.argv[3]])
taken = 0
while taken < int(sys.argv[4]):
    taken += len(consumer.poll(timeout=1))
print("holds them", flush=True)
time.sleep(600)
"""


def test_messages_of_a_killed_consumer_go_to_one_of_the_other_kind(
    tmp_path: Path, cluster: ClusterProcesses
) -> None:
    """A Kafka consumer that holds messages is killed, then a stream that has them: each time the other gets all."""
    cluster.create_topic("passed-on", 1)
    with QueueAdmin(cluster.bootstrap) as admin:
        admin.alter_group_configs("passing", {"share.auto.offset.reset": "earliest"})
    with GatewayAlone(tmp_path / "gateway", cluster.seeds, QUICK) as gateway:
        gateway.wait_healthy(3)
        sent = sorted(produce(gateway.client, "passed-on", 0, 5))
        command = [sys.executable, "-c", KAFKA_CONSUMER, cluster.bootstrap, "passing", "passed-on", "5"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as kafka:
            try:
                assert kafka.stdout is not None
                assert kafka.stdout.readline() == b"holds them\n"
            finally:
                kafka.kill()
        with (
            httpx.Client(base_url=f"http://{gateway.address}", timeout=90) as client,
            Events(client, topic="passed-on", group="passing") as events,
        ):
            taken = [events.next() for _ in sent]
            assert sorted({each["payload"] for each in taken}) == sent
            assert min(each["delivery_count"] for each in taken) >= 2
            events.cut()
        consumer = ShareConsumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "passing",
                "share.acknowledgement.mode": "explicit",
            }
        )
        consumer.subscribe(["passed-on"])
        accepted: set[str] = set()
        try:
            while len(accepted) < len(sent):
                for message in consumer.poll(timeout=1):
                    assert message.error() is None
                    accepted.add(message.value().decode())
                    consumer.acknowledge(message, 1)
                consumer.commit_sync(timeout=60)
        finally:
            consumer.close()
        assert sorted(accepted) == sent
