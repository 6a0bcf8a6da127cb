"""Queues on three nodes: what was accepted stays accepted while leaders, coordinators and consumers are killed."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.client import ClientError, QueueAdmin, QueueConsumer
from millstream.testing.history.queues import QueueEvent, QueueStep, judge_queue
from support import queue_worker
from support.cluster import ClusterProcesses, cluster_of
from support.waiting import wait_for

MESSAGES = 3_000
TOPIC, LETTERS, GROUP = "jobs", "dlq.jobs", "workers"
SETTINGS = {
    "cluster.session_timeout": "10s",
    "kafka.group.share.min.record.lock.duration.ms": "1000",
    "kafka.group.share.record.lock.duration.ms": "3000",
}


class Worker:
    """A consumer in a process of its own; what it says is in `events`."""

    def __init__(self, bootstrap: str, events: list[QueueEvent]) -> None:
        self._events = events
        command = [sys.executable, queue_worker.__file__, TOPIC, GROUP, bootstrap]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            # The last line of a process that was killed may end anywhere.
            if line.endswith("\n"):
                step, at, value = line.split()
                self._events.append(QueueEvent(TOPIC, value, QueueStep(step), float(at)))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(60)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic(TOPIC, 3, min_insync_replicas="2")
        cluster.create_topic(LETTERS, 1, min_insync_replicas="2", errors_deadletterqueue_group_enable="true")
        yield cluster


def test_the_rules_of_queues_hold_when_nodes_and_consumers_are_killed(cluster: ClusterProcesses) -> None:
    with QueueAdmin(cluster.bootstrap) as admin:
        admin.alter_group_configs(
            GROUP, {"errors.deadletterqueue.topic.name": LETTERS, "share.delivery.count.limit": "10"}
        )
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(MESSAGES):
        producer.produce(TOPIC, b"%d" % number, partition=number % 3)
    assert producer.flush(90) == 0
    events = [QueueEvent(TOPIC, str(number), QueueStep.PUT, 0.0) for number in range(MESSAGES)]
    workers = [Worker(cluster.bootstrap, events) for _ in range(4)]
    try:
        for number in (1, 2):
            _wait_for_more(events, 200)
            node = cluster.nodes[number]
            node.kill()
            workers.pop(0).kill()
            workers.append(Worker(cluster.bootstrap, events))
            _wait_for_more(events, 100)
            node.start()
            for topic in (TOPIC, "__share_group_state"):
                cluster.wait_in_sync(topic)
        with QueueAdmin(cluster.bootstrap) as admin:
            wait_for(lambda: _depths(admin), lambda depths: depths == [0, 0, 0], "every message", 240)
    finally:
        for worker in workers:
            worker.kill()
    letters = _letters(cluster.bootstrap)
    end = max(event.at for event in events)
    events += [QueueEvent(TOPIC, value, QueueStep.DEAD, end + 1) for value in letters]
    assert list(judge_queue(events, is_drained=True)) == []
    assert letters >= {str(number) for number in range(0, MESSAGES, queue_worker.EVERY_TENTH)}


def _letters(bootstrap: str) -> set[str]:
    with QueueConsumer(LETTERS, "readers", bootstrap) as queue, QueueAdmin(bootstrap) as admin:
        found: set[str] = set()
        while not found or any(row.depth for row in admin.queues("readers", LETTERS)):
            messages = queue.receive(500, 5)
            found |= {(message.value or b"").decode() for message in messages}
            queue.accept(*messages)
    return found


def _depths(admin: QueueAdmin) -> list[int]:
    try:
        return [row.depth for row in admin.queues(GROUP, TOPIC)]
    except ClientError:
        return []


def _wait_for_more(events: list[QueueEvent], count: int) -> None:
    def settled() -> int:
        return sum(event.step is QueueStep.SETTLED for event in list(events))

    before = settled()
    if before < MESSAGES // 2 - count:
        wait_for(settled, lambda now: now >= before + count, "more messages", 180)
