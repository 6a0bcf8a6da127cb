"""kill -9 of the node while a queue is worked on, again and again (CRASH_ROUNDS)."""

import os
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from millstream.client import ClientError, QueueAdmin, QueueConsumer
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
MESSAGES = 2_000
SETTINGS = {
    "kafka.group.share.min.record.lock.duration.ms": "1000",
    "kafka.group.share.record.lock.duration.ms": "2000",
}


@pytest.mark.timeout(900 + 60 * ROUNDS)
def test_what_was_accepted_is_not_delivered_again_and_interrupted_deliveries_count(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node(settings=SETTINGS)
    create_topic(admin_for(node.bootstrap), "jobs", 2)
    with QueueAdmin(node.bootstrap) as admin:
        admin.alter_group_configs("workers", {"share.delivery.count.limit": "10"})
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(MESSAGES):
        producer.produce("jobs", b"%d" % number, partition=number % 2)
    assert producer.flush(90) == 0
    accepted: dict[bytes, float] = {}
    delivered: list[tuple[float, float, bytes, int]] = []
    """When it was asked for and when it came, the message, and how often it was delivered."""
    over = threading.Event()

    def work() -> None:
        with QueueConsumer("jobs", "workers", node.bootstrap) as queue:
            while not over.is_set():
                asked = time.monotonic()
                try:
                    messages = queue.receive(20, 1.0)
                except ClientError:
                    continue
                came = time.monotonic()
                delivered.extend((asked, came, each.value or b"", each.delivery_count) for each in messages)
                for message in messages:
                    try:
                        queue.accept(message)
                    except ClientError:
                        break
                    accepted[message.value or b""] = time.monotonic()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(ROUNDS):
            before = len(accepted)
            wait_for(lambda: len(accepted), lambda count: count >= min(before + 100, MESSAGES), "progress")  # noqa: B023
            node.kill()
            node.start()
        with QueueAdmin(node.bootstrap) as admin:
            wait_for(lambda: _depths(admin), lambda depths: depths == [0, 0], "every message", 240)
    finally:
        over.set()
        for worker in workers:
            worker.join(90)
    counts: dict[bytes, list[int]] = {b"%d" % number: [] for number in range(MESSAGES)}
    # By when they came: a question that was asked before a kill may be answered after it.
    for _, _, value, count in sorted(delivered, key=lambda each: each[1]):
        counts[value].append(count)
    again = [value for asked, _, value, _ in delivered if value in accepted and asked > accepted[value]]
    assert again == []
    for value, of_value in counts.items():
        assert of_value, f"{value!r} was not delivered"
        assert of_value == sorted(set(of_value)), f"{value!r} was delivered with the counts {of_value}"


def _depths(admin: QueueAdmin) -> list[int]:
    try:
        return [row.depth for row in admin.queues("workers", "jobs")]
    except ClientError:
        return []
