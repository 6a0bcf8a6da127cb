"""Share groups with librdkafka's own share consumer."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer, ShareConsumer

from millstream.client import ClientError, QueueAdmin, QueueConsumer
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

ACCEPT, RELEASE, REJECT = 1, 2, 3
# Short locks and sessions, which Kafka's bounds do not allow.
SETTINGS = {
    "kafka.group.share.min.session.timeout.ms": "6000",
    "kafka.group.share.min.record.lock.duration.ms": "1000",
    "kafka.group.share.record.lock.duration.ms": "15000",
}


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("queues"), settings=SETTINGS).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


@pytest.fixture
def topic(queues: NodeProcess, new_topic: Callable[[], str]) -> str:
    return create_topic(admin_for(queues.bootstrap), new_topic(), 2)


def set_group(node: NodeProcess, group: str, **configs: str) -> None:
    with QueueAdmin(node.bootstrap) as admin:
        admin.alter_group_configs(group, {name.replace("_", "."): value for name, value in configs.items()})


def send(node: NodeProcess, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 1})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(60) == 0


@contextmanager
def sharing(node: NodeProcess, group: str, topic: str, mode: str = "explicit") -> Iterator[ShareConsumer]:
    consumer = ShareConsumer(
        {"bootstrap.servers": node.bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(
    consumer: ShareConsumer, wanted: int, outcome: int = ACCEPT, seconds: float = 90
) -> list[bytes]:
    got: list[bytes] = []
    deadline = time.monotonic() + seconds
    while len(got) < wanted and time.monotonic() < deadline:
        for message in consumer.poll(timeout=1.0):
            assert message.error() is None, message.error()
            got.append(message.value())
            consumer.acknowledge(message, outcome)
        consumer.commit_sync(timeout=60)
    return got


def test_every_message_goes_to_one_of_the_consumers(queues: NodeProcess, topic: str) -> None:
    set_group(queues, f"{topic}-g", share_auto_offset_reset="earliest")
    values = [b"%d" % number for number in range(2_000)]
    send(queues, topic, values)
    got: list[list[bytes]] = [[], [], []]
    done = threading.Event()

    def consume(index: int) -> None:
        with sharing(queues, f"{topic}-g", topic) as consumer:
            while not done.is_set():
                for message in consumer.poll(timeout=0.5):
                    got[index].append(message.value())
                    consumer.acknowledge(message, ACCEPT)
                consumer.commit_sync(timeout=60)

    threads = [threading.Thread(target=consume, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: sum(map(len, got)), lambda count: count >= len(values), "every message")
    finally:
        done.set()
        for thread in threads:
            thread.join(90)
    assert Counter(value for each in got for value in each) == Counter(values)
    with QueueAdmin(queues.bootstrap) as admin:
        assert {row.depth for row in admin.queues(topic=topic)} == {0}


def test_a_new_consumer_need_not_wait_for_its_assignment(queues: NodeProcess, topic: str) -> None:
    with sharing(queues, f"{topic}-g", topic) as consumer:
        # "latest" begins with the first fetch.
        deadline = time.monotonic() + 60
        with QueueAdmin(queues.bootstrap) as admin:
            while len(admin.queues(topic=topic)) < 2 and time.monotonic() < deadline:
                consumer.poll(timeout=0.2)
        send(queues, topic, [b"a", b"b"])
        assert sorted(poll_until(consumer, 2)) == [b"a", b"b"]


def test_what_is_released_is_delivered_again_and_rejected_is_not(queues: NodeProcess, topic: str) -> None:
    set_group(queues, f"{topic}-g", share_auto_offset_reset="earliest")
    send(queues, topic, [b"again", b"never"])
    seen: Counter[bytes] = Counter()
    with sharing(queues, f"{topic}-g", topic) as consumer:
        deadline = time.monotonic() + 90
        while seen[b"again"] < 3 and time.monotonic() < deadline:
            for message in consumer.poll(timeout=1.0):
                seen[message.value()] += 1
                again = message.value() == b"again" and seen[b"again"] < 3
                consumer.acknowledge(message, RELEASE if again else REJECT)
            consumer.commit_sync(timeout=60)
    assert seen == {b"again": 3, b"never": 1}


def test_a_consumer_that_goes_away_leaves_its_messages_to_others(queues: NodeProcess, topic: str) -> None:
    set_group(queues, f"{topic}-g", share_auto_offset_reset="earliest")
    send(queues, topic, [b"%d" % number for number in range(20)])
    first = ShareConsumer(
        {
            "bootstrap.servers": queues.bootstrap,
            "group.id": f"{topic}-g",
            "share.acknowledgement.mode": "explicit",
        }
    )
    first.subscribe([topic])
    held: list[bytes] = []
    while not held:
        held = [message.value() for message in first.poll(timeout=1.0)]
    first.close()
    with sharing(queues, f"{topic}-g", topic) as second:
        assert len(poll_until(second, 20)) == 20


def test_the_messages_of_a_killed_consumer_go_to_another(queues: NodeProcess, topic: str) -> None:
    set_group(queues, f"{topic}-g", share_auto_offset_reset="earliest", share_session_timeout_ms="6000")
    send(queues, topic, [b"%d" % number for number in range(20)])
    program = (
        "import sys; from confluent_kafka import ShareConsumer; "
        "settings = dict(zip(('bootstrap.servers', 'group.id'), sys.argv[1:3])); "
        "consumer = ShareConsumer({**settings, 'share.acknowledgement.mode': 'explicit'}); "
        "consumer.subscribe([sys.argv[3]]); "
        "held = next(filter(None, iter(lambda: consumer.poll(timeout=1.0), None))); "
        "print(len(held), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, queues.bootstrap, f"{topic}-g", topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        held = int(victim.stdout.readline())
        victim.kill()
    with sharing(queues, f"{topic}-g", topic) as second:
        assert len(poll_until(second, 20)) == 20
    with QueueAdmin(queues.bootstrap) as admin:
        assert sum(row.redelivered for row in admin.queues(topic=topic)) >= held > 0


def test_dead_letters_after_the_limit_keep_key_value_and_reason(queues: NodeProcess, topic: str) -> None:
    letters = create_topic(
        admin_for(queues.bootstrap), f"dlq.{topic}", 1, {"errors.deadletterqueue.group.enable": "true"}
    )
    set_group(
        queues,
        f"{topic}-g",
        share_auto_offset_reset="earliest",
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name=letters,
    )
    send(queues, topic, [b"poison"])
    with sharing(queues, f"{topic}-g", topic) as consumer:
        assert poll_until(consumer, 2, RELEASE) == [b"poison", b"poison"]
    with QueueConsumer(letters, "readers", queues.bootstrap) as dead:
        letter = dead.receive(timeout=60)[0]
        dead.accept(letter)
    headers = dict(letter.headers)
    assert letter.value == b"poison"
    assert headers["__dlq.errors.topic"] == topic.encode()
    assert headers["__dlq.errors.delivery.count"] == b"2"
    assert headers["__dlq.errors.message"] == b"delivered too often"


def test_implicit_acknowledgement(queues: NodeProcess, topic: str) -> None:
    set_group(queues, f"{topic}-g", share_auto_offset_reset="earliest")
    send(queues, topic, [b"%d" % number for number in range(50)])
    got: list[bytes] = []
    with sharing(queues, f"{topic}-g", topic, "implicit") as consumer:
        while len(got) < 50:
            got += [message.value() for message in consumer.poll(timeout=1.0)]
        consumer.commit_sync(timeout=60)
    with QueueAdmin(queues.bootstrap) as admin:
        assert {row.depth for row in admin.queues(topic=topic)} == {0}


def test_settings_of_groups_are_checked(queues: NodeProcess) -> None:
    with pytest.raises(ClientError, match="INVALID_CONFIG"):
        set_group(queues, "g", share_record_lock_duration_ms="999999999")
    with pytest.raises(ClientError, match="INVALID_CONFIG"):
        set_group(queues, "g", share_nothing="1")
