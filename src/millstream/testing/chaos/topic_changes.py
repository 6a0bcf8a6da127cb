"""Creates, grows, moves and deletes topics during a run, and checks that all partitions have leaders in the end.

Under faults a request may fail, or be carried out without an answer. In the end, with all nodes healthy, no partition
may be without a leader, no replica out of sync and no move unfinished.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Producer

from millstream.client.errors import ClientError
from millstream.client.wire.connection import Connection
from millstream.client.wire.properties import addresses
from millstream.client.wire.settings import ClusterSettings
from millstream.testing.chaos.clients import Recorder

_NAMES = tuple(f"passing-{number}" for number in range(6))
_PATIENCE = timedelta(seconds=5)
_LOOK_SECONDS = 0.2
_RECORDS = 20


class TopicChanger:
    """Reuses a few names, so that a topic meets what an earlier one of its name left behind."""

    def __init__(self, bootstrap: str, nodes: int, random: Random, recorder: Recorder) -> None:
        self.count = 0
        self._bootstrap = bootstrap
        self._nodes = range(1, nodes + 1)
        self._random = random
        self._recorder = recorder
        self._works: tuple[Callable[[], None], ...] = (
            self._create, self._create, self._grow, self._move, self._move, self._move_back, self._delete,
        )  # fmt: skip

    def run(self, is_over: threading.Event) -> None:
        producer = self._new_producer()
        while not is_over.is_set():
            try:
                self._random.choice(self._works)()
                self.count += 1
            except (OSError, ClientError) as error:
                self._recorder.note(f"topics: {error}")
            self._fill(producer)
            is_over.wait(self._random.expovariate(4.0))
        # Messages for deleted topics are given up.
        producer.purge()

    # -- changes

    def _create(self) -> None:
        factor = self._random.choice((1, 2, 3, 3))
        factor = min(factor, len(self._nodes))
        configs = {"min.insync.replicas": str(self._random.randint(1, max(1, factor - 1)))}
        if self._random.random() < 0.2:
            configs["flush.ms"] = "1000"
        new = {
            "name": self._random.choice(_NAMES),
            "num_partitions": self._random.randint(1, 4),
            "replication_factor": factor,
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        self._call("create_topics", topics=[new], timeout=_PATIENCE)

    def _grow(self) -> None:
        name, partitions = self._any()
        if name:
            topic = {"name": name, "count": len(partitions) + self._random.randint(1, 2), "assignments": None}
            self._call("create_partitions", topics=[topic], timeout=_PATIENCE)

    def _move(self) -> None:
        name, partitions = self._any()
        count = min(self._random.randint(1, 3), len(self._nodes))
        if name:
            replicas = self._random.sample(list(self._nodes), count)
            self._reassign(name, self._random.choice(partitions).partition_index, replicas)

    def _move_back(self) -> None:
        name, partitions = self._any()
        if name:
            self._reassign(name, self._random.choice(partitions).partition_index, None)

    def _delete(self) -> None:
        self._call(
            "delete_topics",
            topics=[{"name": self._random.choice(_NAMES), "topic_id": None}],
            timeout=_PATIENCE,
        )

    def _reassign(self, name: str, index: int, replicas: list[int] | None) -> None:
        wanted = {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
        self._call("alter_partition_reassignments", topics=[wanted], timeout=_PATIENCE)

    def _any(self) -> tuple[str, Any]:
        """An existing short-lived topic; an empty name if there is none."""
        name = self._random.choice(_NAMES)
        topics = self._call("metadata", topics=None, allow_auto_topic_creation=False).topics
        found = next((each.partitions for each in topics if each.name == name), ())
        return (name, found) if found else ("", ())

    # -- requests

    def _call(self, name: str, **fields: Any) -> Any:
        address = self._random.choice(self._bootstrap.split(","))
        return ask(address, name, **fields)

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "message.timeout.ms": 5000,
                "allow.auto.create.topics": False,
                "log_level": 0,
            }
        )

    def _fill(self, producer: Producer) -> None:
        """Writes a few uncounted messages, so that logs are not empty."""
        name = self._random.choice(_NAMES)
        for number in range(_RECORDS):
            with suppress(BufferError, KafkaException):
                producer.produce(name, f"{number}".encode() * 10)
        producer.poll(0)


def ask(address: str, name: str, **fields: Any) -> Any:
    known = addresses(address)
    node = Connection(known[0], ClusterSettings(known, asks_node_itself=True, request_timeout_s=65.0))
    try:
        return node.call(name, **fields)
    finally:
        node.close()


def unsettled(address: str, seconds: float) -> list[str]:
    """Partitions without a leader, not fully in sync, or still moving when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            left = _unsettled(address)
        except OSError as error:
            left = [f"the node at {address} cannot be asked: {error}"]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_LOOK_SECONDS)


def _unsettled(address: str) -> list[str]:
    topics = ask(address, "metadata", topics=None, allow_auto_topic_creation=False).topics
    moving = ask(address, "list_partition_reassignments", topics=None).topics
    left = [
        f"{topic.name}-{p.partition_index} is still being moved" for topic in moving for p in topic.partitions
    ]
    for topic in topics:
        for p in topic.partitions:
            if p.leader_id < 0:
                left.append(f"{topic.name}-{p.partition_index} has no leader; replicas {p.replica_nodes}")
            elif len(p.isr_nodes) < len(p.replica_nodes):
                left.append(
                    f"{topic.name}-{p.partition_index}: of {p.replica_nodes} only {p.isr_nodes} are in sync"
                )
    return left
