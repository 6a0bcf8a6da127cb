"""Settings of groups and topics that decide when, and whether, a message of a queue is delivered."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from millstream.client import QueueAdmin, QueueConsumer, QueueMessage
from support.metrics import metric
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

SETTINGS = {"kafka.group.share.min.record.lock.duration.ms": "1000"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("queues"), settings=SETTINGS).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture
def new_queue(node: NodeProcess, new_topic: Callable[[], str]) -> Callable[..., tuple[str, str]]:
    """A topic with these settings, and the name of a group of its own."""

    def create(**configs: str) -> tuple[str, str]:
        by_name = {name.replace("_", "."): value for name, value in configs.items()}
        prefix = "dlq." if "errors.deadletterqueue.group.enable" in by_name else ""
        topic = create_topic(admin_for(node.bootstrap), prefix + new_topic(), 1, by_name)
        return topic, f"{topic}-g"

    return create


def configure(node: NodeProcess, group: str, **configs: str) -> None:
    with QueueAdmin(node.bootstrap) as admin:
        admin.alter_group_configs(group, {name.replace("_", "."): value for name, value in configs.items()})


def send(
    node: NodeProcess,
    topic: str,
    *values: bytes,
    headers: dict[str, str] | None = None,
    timestamp_ms: int = 0,
) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for value in values:
        producer.produce(topic, value, headers=headers, timestamp=timestamp_ms)
    assert producer.flush(60) == 0


def one(queue: QueueConsumer) -> QueueMessage:
    return wait_for(lambda: queue.receive(1, 5), bool, "a message")[0]


def test_a_group_begins_where_its_setting_says(
    node: NodeProcess, new_queue: Callable[..., tuple[str, str]]
) -> None:
    topic, group = new_queue()
    hour_ago = int(time.time() * 1000) - 3_600_000
    send(node, topic, b"old", timestamp_ms=hour_ago - 60_000)
    send(node, topic, b"new", timestamp_ms=hour_ago + 1_800_000)
    configure(node, f"{group}-late", share_auto_offset_reset="latest")
    configure(node, f"{group}-hour", share_auto_offset_reset="by_duration:PT1H")
    with QueueConsumer(topic, f"{group}-late", node.bootstrap) as queue:
        assert queue.receive(1, 0.1) == []
        send(node, topic, b"last")
        assert one(queue).value == b"last"
    with QueueConsumer(topic, f"{group}-hour", node.bootstrap) as queue:
        assert one(queue).value == b"new"


def test_a_scheduled_message_waits_for_its_time(
    node: NodeProcess, new_queue: Callable[..., tuple[str, str]]
) -> None:
    topic, group = new_queue(queue_headers_enable="true")

    def send_for(due: float, value: bytes) -> None:
        send(node, topic, value, headers={"millstream.deliver.at.ms": str(int(due * 1000))})

    send_for(time.time() + 3600, b"much later")
    send(node, topic, b"now")
    with QueueConsumer(topic, group, node.bootstrap) as queue:
        assert one(queue).value == b"now"
        due = time.time() + 1.5
        send_for(due, b"later")
        assert one(queue).value == b"later"
    assert time.time() >= due - 0.1


def test_messages_older_than_the_topic_allows_go_to_the_dead_letters(
    node: NodeProcess, new_queue: Callable[..., tuple[str, str]]
) -> None:
    topic, group = new_queue(queue_ttl_ms="60000")
    letters, _ = new_queue(errors_deadletterqueue_group_enable="true")
    configure(node, group, errors_deadletterqueue_topic_name=letters)
    send(node, topic, b"stale", timestamp_ms=int(time.time() * 1000) - 61_000)
    send(node, topic, b"fresh")
    with QueueConsumer(topic, group, node.bootstrap) as queue:
        assert one(queue).value == b"fresh"
        with QueueConsumer(letters, "readers", node.bootstrap) as dead:
            assert one(dead).value == b"stale"
    assert metric(node, "millstream_queue_expired_total", group=group, topic=topic) == 1


def test_back_offs_grow_to_a_maximum(node: NodeProcess, new_queue: Callable[..., tuple[str, str]]) -> None:
    topic, group = new_queue()
    configure(
        node,
        group,
        queue_retry_backoff_ms="200",
        queue_retry_backoff_multiplier="3",
        queue_retry_backoff_max_ms="900",
    )
    send(node, topic, b"a")
    with QueueConsumer(topic, group, node.bootstrap) as queue:
        message = one(queue)
        for count, wait_s in enumerate((0.2, 0.6, 0.9), 2):
            released = time.monotonic()
            queue.release(message)
            message = one(queue)
            assert message.delivery_count == count
            assert time.monotonic() - released >= wait_s - 0.05


def test_letters_without_the_record_and_what_is_counted(
    node: NodeProcess, new_queue: Callable[..., tuple[str, str]]
) -> None:
    topic, group = new_queue()
    letters, _ = new_queue(errors_deadletterqueue_group_enable="true")
    configure(
        node,
        group,
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable="false",
    )
    send(node, topic, b"secret", b"kept", headers={"own": "1"})
    with QueueConsumer(topic, group, node.bootstrap) as queue:
        first = one(queue)
        queue.release(first)
        second = next(message for message in iter(lambda: one(queue), None) if message.value == b"secret")
        queue.reject(second, reason="bad")
        with QueueConsumer(letters, "readers", node.bootstrap) as dead:
            letter = one(dead)

        def counted(name: str) -> float:
            return metric(node, f"millstream_queue_{name}", group=group, topic=topic)

        wait_for(lambda: counted("dead_letters_total"), lambda count: count == 1, "a dead letter")
        assert counted("redeliveries_total") == 1
        assert counted("depth") == 1
        assert counted("in_flight") <= 1
        assert counted("oldest_age_seconds") > 0
    assert letter.value is None
    assert letter.key is None
    assert {name for name, _ in letter.headers} == {
        f"__dlq.errors.{name}"
        for name in ("topic", "partition", "offset", "group", "delivery.count", "message", "record.missing")
    }


def test_iterating(node: NodeProcess, new_queue: Callable[..., tuple[str, str]]) -> None:
    topic, group = new_queue()
    send(node, topic, b"a", b"b", b"c")
    got = []
    with QueueConsumer(topic, group, node.bootstrap) as queue:
        for message in queue:
            got.append(message.value)
            queue.accept(message)
            if len(got) == 3:
                break
    assert got == [b"a", b"b", b"c"]
