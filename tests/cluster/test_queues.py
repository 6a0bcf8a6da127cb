"""Queues on three nodes: what was accepted stays accepted while leaders and coordinators are killed."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.client import ClientError, QueueAdmin, QueueConsumer, QueueMessage
from support.cluster import ClusterProcesses, cluster_of
from support.waiting import wait_for

MESSAGES = 3_000
GROUP = "workers"
SETTINGS = {
    "cluster.session_timeout": "3s",
    "kafka.group.share.min.record.lock.duration.ms": "1000",
    "kafka.group.share.record.lock.duration.ms": "3000",
}


class Worker(threading.Thread):
    """Accepts what it gets; `confirmed` are those of which it was told that they are done."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self.delivered: list[tuple[float, bytes]] = []
        self.confirmed: list[tuple[float, bytes]] = []
        self.over = threading.Event()

    def run(self) -> None:
        with QueueConsumer("jobs", GROUP, self._servers) as queue:
            while not self.over.is_set():
                asked = time.monotonic()
                try:
                    messages = queue.receive(50, 1.0)
                    self.delivered += [(asked, message.value or b"") for message in messages]
                    self._accept(queue, messages)
                except ClientError:
                    continue

    def _accept(self, queue: QueueConsumer, messages: list[QueueMessage]) -> None:
        for message in messages:
            try:
                queue.accept(message)
            except ClientError:
                continue
            self.confirmed.append((time.monotonic(), message.value or b""))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic("jobs", 3, min_insync_replicas="2")
        yield cluster


def test_nothing_that_was_accepted_comes_again_when_nodes_are_killed(cluster: ClusterProcesses) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    values = [b"%d" % number for number in range(MESSAGES)]
    for number, value in enumerate(values):
        producer.produce("jobs", value, partition=number % 3)
    assert producer.flush(90) == 0
    workers = [Worker(cluster.bootstrap) for _ in range(4)]
    for worker in workers:
        worker.start()
    try:
        for number in (1, 2):
            _wait_for_more(workers, 200)
            node = cluster.nodes[number]
            node.kill()
            _wait_for_more(workers, 100)
            node.start()
            for topic in ("jobs", "__share_group_state"):
                cluster.wait_in_sync(topic)
        with QueueAdmin(cluster.bootstrap) as admin:
            wait_for(lambda: _depths(admin), lambda depths: depths == [0, 0, 0], "every message", 240)
    finally:
        for worker in workers:
            worker.over.set()
        for worker in workers:
            worker.join(90)
    assert {value for worker in workers for _, value in worker.delivered} == set(values)
    done = {value: at for worker in workers for at, value in worker.confirmed}
    again = [
        value
        for worker in workers
        for asked, value in worker.delivered
        if value in done and asked > done[value]
    ]
    assert again == []


def _depths(admin: QueueAdmin) -> list[int]:
    try:
        return [row.depth for row in admin.queues(GROUP, "jobs")]
    except ClientError:
        return []


def _seen(workers: list[Worker]) -> Counter[bytes]:
    return Counter(value for worker in workers for _, value in list(worker.confirmed))


def _wait_for_more(workers: list[Worker], count: int) -> None:
    before = sum(_seen(workers).values())
    if before < MESSAGES - count:
        wait_for(
            lambda: sum(_seen(workers).values()), lambda now: now >= before + count, "more messages", 180
        )
