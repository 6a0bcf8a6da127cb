"""Share groups, of Millstream and of Apache Kafka: the same clients, the same requests."""

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from bench.machine import Usage, usage
from bench.peers import PeerError, UnsupportedError
from bench.peers.millstream import Millstream
from bench.queues import VALUE, WINDOW_BATCHES, WINDOW_ONE_BY_ONE, connect
from bench.queues.share_client import ShareConsumer
from millstream.client import QueueAdmin
from millstream.runtime.ports import ReservedPorts

KAFKA_VERSION = "4.3.1"
_REPOSITORY = Path(__file__).resolve().parents[2]
_GROUP_SETTINGS = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": "4000"}


class ShareGroups:
    """On one partition: one queue."""

    bootstrap: str
    deletes_settled = False
    _producer: confluent_kafka.Producer | None = None

    def create(self, queue: str) -> None:
        topic = NewTopic(queue, num_partitions=1, replication_factor=1)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([topic])[queue].result(60)

    def enqueue(self, queue: str, count: int) -> float:
        if self._producer is None:
            # 16 KB, as Java's producer has it: a batch is sent whole to each consumer that gets something of it.
            self._producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "linger.ms": 5,
                    "batch.size": 16_384,
                    "acks": "all",
                    "queue.buffering.max.messages": 2_000_000,
                    "queue.buffering.max.kbytes": 1 << 20,
                }
            )
        producer = self._producer
        began = time.perf_counter()
        for number in range(count):
            producer.produce(queue, VALUE)
            if number % 1000 == 0:
                producer.poll(0)
        if producer.flush(120):
            raise PeerError(f"not all of {count} messages were acknowledged to their producer")
        return time.perf_counter() - began

    def consumers(self, queue: str, count: int, *, one_by_one: bool) -> Sequence[ShareConsumer]:
        group = f"{queue}-{uuid.uuid4().hex[:6]}"
        with QueueAdmin(self.bootstrap) as admin:
            admin.alter_group_configs(group, _GROUP_SETTINGS)
            topic_id = admin.topic_id(queue)
        self._join(group, queue)
        window = WINDOW_ONE_BY_ONE if one_by_one else WINDOW_BATCHES
        return [
            ShareConsumer(self.bootstrap, group, topic_id, window=window, one_by_one=one_by_one)
            for _ in range(count)
        ]

    def _join(self, group: str, queue: str) -> None:
        """Where a group is known by its members, one joins."""


class MillstreamQueues(ShareGroups):
    name = "Millstream"
    settings = (
        "every message, delivery and acknowledgement is synced to disk before it is answered (the default)"
    )

    def __init__(self, broker: Millstream) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap

    def usage(self) -> Usage:
        return self._broker.usage()

    def stop(self) -> None:
        self._broker.stop()


class KafkaQueues(ShareGroups):
    """One node that is broker and controller. `synced` flushes every append, as Millstream does."""

    def __init__(self, directory: Path, *, synced: bool) -> None:
        jars = kafka_jars()
        self.name = f"Apache Kafka {KAFKA_VERSION}" + ("" if synced else ", not synced")
        self.settings = (
            "log.flush.interval.messages=1: every append is synced to disk"
            if synced
            else "as shipped: nothing is synced before it is answered"
        )
        with ReservedPorts(2) as free:
            port, controller = free.ports
        self.bootstrap = f"127.0.0.1:{port}"
        self._directory = directory
        settings = directory / "server.properties"
        settings.write_text(_properties(port, controller, directory / "data", synced=synced))
        java = ["java", "-Xmx1g", "-cp", f"{jars}/*"]
        formatted = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        if formatted.returncode:
            raise UnsupportedError(f"Apache Kafka's storage was not made: {formatted.stdout[-300:]}")
        self._log = (directory / "kafka.log").open("w")
        self._process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)], stdout=self._log, stderr=subprocess.STDOUT
        )
        connect(port, check=self._check).close()

    def _check(self) -> None:
        if self._process.poll() is not None:
            log = (self._directory / "kafka.log").read_text()
            raise UnsupportedError(f"Apache Kafka ended: {log[-300:]}")

    def _join(self, group: str, queue: str) -> None:
        """A share consumer of librdkafka makes the group; others need not be members to fetch."""
        consumer = confluent_kafka.ShareConsumer(
            {"bootstrap.servers": self.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        )
        consumer.subscribe([queue])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not consumer.poll(1.0):
            pass
        consumer.close()

    def usage(self) -> Usage:
        return usage(self._process.pid)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._log.close()


def kafka_jars() -> Path:
    jars = Path(os.environ.get("MILLSTREAM_TEST_KAFKA_JARS", _REPOSITORY / ".stamps" / "kafka-jars"))
    if not any(jars.glob("kafka_2.13-*.jar")):
        raise UnsupportedError(
            f"no Apache Kafka {KAFKA_VERSION}: `make .stamps/kafka-jars` fetches it (Maven)"
        )
    if shutil.which("java") is None:
        raise UnsupportedError("no Apache Kafka: there is no java")
    return jars


def _properties(port: int, controller: int, data: Path, *, synced: bool) -> str:
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={data}",
        "offsets.topic.replication.factor=1",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
        *(["log.flush.interval.messages=1"] if synced else []),
    ]
    return "\n".join(lines)
