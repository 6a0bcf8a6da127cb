"""`QueueConsumer`, what Kafka's protocol has no words for, and the settings of topics and groups."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millstream.client import (
    AsyncQueueConsumer,
    ClientError,
    QueueAdmin,
    QueueConsumer,
    QueueMessage,
    queue_consumer,
)
from support.cli import Cli
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
def queue_topic(node: NodeProcess, new_topic: Callable[[], str]) -> Callable[..., str]:
    def create(**configs: str) -> str:
        by_name = {name.replace("_", "."): value for name, value in configs.items()}
        prefix = "dlq." if "errors.deadletterqueue.group.enable" in by_name else ""
        return create_topic(admin_for(node.bootstrap), prefix + new_topic(), 1, by_name)

    return create


def configure(node: NodeProcess, group: str, **configs: str) -> None:
    with QueueAdmin(node.bootstrap) as admin:
        admin.alter_group_configs(group, {name.replace("_", "."): value for name, value in configs.items()})


def send(node: NodeProcess, topic: str, *messages: tuple[bytes | None, bytes, dict[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    failures = []
    for key, value, headers in messages:
        producer.produce(
            topic, value, key, headers=headers, on_delivery=lambda error, _: error and failures.append(error)
        )
    producer.flush(60)
    if failures:
        raise KafkaException(failures[0])


def plain(*values: bytes) -> list[tuple[None, bytes, dict[str, str]]]:
    return [(None, value, {}) for value in values]


def values(messages: list[QueueMessage]) -> list[bytes | None]:
    return [message.value for message in messages]


def receive(queue: QueueConsumer, wanted: int) -> list[QueueMessage]:
    """So many, in however many steps they come."""
    found: list[QueueMessage] = []
    deadline = time.monotonic() + 60
    while len(found) < wanted and time.monotonic() < deadline:
        found += queue.receive(wanted - len(found), 5)
    assert len(found) == wanted
    return found


def test_groups_are_independent_and_consumers_of_one_share(
    node: NodeProcess, queue_topic: Callable[..., str]
) -> None:
    topic = queue_topic()
    send(node, topic, *plain(b"a", b"b", b"c", b"d"))
    with (
        QueueConsumer(topic, "one", node.bootstrap) as first,
        QueueConsumer(topic, "one", node.bootstrap) as second,
        QueueConsumer(topic, "two", node.bootstrap) as other,
    ):
        mine = first.receive(2, 30)
        rest = receive(second, 4 - len(mine))
        assert sorted(values(mine + rest)) == [b"a", b"b", b"c", b"d"]
        assert values(receive(other, 4)) == [b"a", b"b", b"c", b"d"]


def test_what_is_not_accepted_comes_again_when_its_lock_ends_or_its_consumer_closes(
    node: NodeProcess, queue_topic: Callable[..., str]
) -> None:
    topic = queue_topic()
    configure(node, f"{topic}-g", share_record_lock_duration_ms="1000")
    send(node, topic, *plain(b"a"))
    with QueueConsumer(topic, f"{topic}-g", node.bootstrap) as queue:
        held = receive(queue, 1)[0]
        again = receive(queue, 1)[0]
        assert (held.delivery_count, again.delivery_count) == (1, 2)
    with QueueConsumer(topic, f"{topic}-g", node.bootstrap) as queue:
        assert receive(queue, 1)[0].delivery_count == 3


def test_what_a_loop_took_ahead_comes_to_others_as_if_never_delivered(
    node: NodeProcess, queue_topic: Callable[..., str]
) -> None:
    topic = queue_topic()
    send(node, topic, *plain(b"a", b"b", b"c"))
    with QueueConsumer(topic, "loops", node.bootstrap) as queue:
        first = next(iter(queue))
        queue.accept(first)
    counts: dict[bytes | None, int] = {first.value: first.delivery_count}
    with QueueConsumer(topic, "loops", node.bootstrap) as queue:
        while len(counts) < 3:
            for message in queue.receive(3, 60):
                counts[message.value] = message.delivery_count
                queue.accept(message)
    assert counts == {b"a": 1, b"b": 1, b"c": 1}


def test_a_look_begins_no_queue(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    topic = queue_topic()
    send(node, topic, *plain(b"a", b"b"))
    configure(node, "latecomers", share_auto_offset_reset="latest")
    with QueueAdmin(node.bootstrap) as admin:
        _, records = admin.peek("watched", topic, 0)
        assert [records[offset].value for offset in sorted(records)] == [b"a", b"b"]
        assert admin.peek("latecomers", topic, 0)[1] == {}
        assert admin.queues(topic=topic) == []
    # It begins when its first consumer comes.
    send(node, topic, *plain(b"c"))
    with QueueConsumer(topic, "latecomers", node.bootstrap) as queue:
        assert queue.receive(3, 0) == []


def test_settling_what_is_not_held_is_refused(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    topic = queue_topic()
    send(node, topic, *plain(b"a", b"b"))
    with (
        QueueConsumer(topic, "g", node.bootstrap) as queue,
        QueueConsumer(topic, "g", node.bootstrap) as other,
    ):
        message = receive(queue, 1)[0]
        with pytest.raises(ClientError, match="INVALID_RECORD_STATE"):
            other.accept(message)
        queue.renew(message)
        queue.accept(message)
        # Settled long ago: nothing is wrong with saying so once more.
        queue.accept(message)


def test_a_release_with_a_delay_and_a_back_off(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    topic = queue_topic()
    configure(node, f"{topic}-g", queue_retry_backoff_ms="1500")
    send(node, topic, *plain(b"a"))
    with QueueConsumer(topic, f"{topic}-g", node.bootstrap) as queue:
        message = receive(queue, 1)[0]
        released = time.monotonic()
        queue.release(message, delay=1.0)
        message = receive(queue, 1)[0]
        assert time.monotonic() - released >= 0.9
        released = time.monotonic()
        queue.release(message)
        receive(queue, 1)
        assert time.monotonic() - released >= 2.0


def test_delay_priority_and_expiry_by_headers(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    topic = queue_topic(queue_headers_enable="true")
    send(
        node,
        topic,
        # However long a busy machine takes, it is not due before the others are taken.
        (None, b"much later", {"millstream.delay.ms": "3600000"}),
        (None, b"gone", {"millstream.ttl.ms": "1"}),
        (None, b"low", {}),
        (None, b"high", {"millstream.priority": "9"}),
    )
    with QueueConsumer(topic, "g", node.bootstrap) as queue:
        assert values([*receive(queue, 1), *receive(queue, 1)]) == [b"high", b"low"]
        sent = time.monotonic()
        send(node, topic, (None, b"later", {"millstream.delay.ms": "1500"}))
        assert values(receive(queue, 1)) == [b"later"]
        assert time.monotonic() - sent >= 1.4


def test_order_by_key_and_strict_order(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    by_key, strict = queue_topic(queue_order="key"), queue_topic(queue_order="strict")
    for topic in (by_key, strict):
        send(node, topic, (b"k", b"1", {}), (b"k", b"2", {}), (b"l", b"3", {}))
    with QueueConsumer(by_key, "g", node.bootstrap) as queue:
        first = receive(queue, 2)
        assert values(first) == [b"1", b"3"]
        assert queue.receive(1, 0.2) == []
        queue.accept(first[0])
        assert values(receive(queue, 1)) == [b"2"]
    with QueueConsumer(strict, "g", node.bootstrap) as queue:
        for expected in (b"1", b"2", b"3"):
            message = receive(queue, 1)[0]
            assert message.value == expected
            assert queue.receive(1, 0.2) == []
            queue.accept(message)


def test_a_full_queue_refuses_or_drops_the_oldest(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    refusing = queue_topic(queue_max_depth="2")
    dropping = queue_topic(queue_max_depth="2", queue_overflow="drop-oldest")
    for topic in (refusing, dropping):
        with QueueConsumer(topic, "g", node.bootstrap) as queue:
            assert queue.receive(1, 0.1) == []
        for value in (b"a", b"b"):
            send(node, topic, *plain(value))
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        send(node, refusing, *plain(b"c"))
    send(node, dropping, *plain(b"c"))
    with QueueConsumer(dropping, "g", node.bootstrap) as queue:
        assert values(receive(queue, 2)) == [b"b", b"c"]


def test_a_queue_without_a_group_is_full_when_its_log_is(
    node: NodeProcess, queue_topic: Callable[..., str]
) -> None:
    refusing = queue_topic(queue_max_depth="2")
    dropping = queue_topic(queue_max_depth="2", queue_overflow="drop-oldest")
    for topic in (refusing, dropping):
        for value in (b"a", b"b"):
            send(node, topic, *plain(value))
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        send(node, refusing, *plain(b"c"))
    send(node, dropping, *plain(b"c"))
    admin = admin_for(node.bootstrap)
    wait_for(lambda: _log_start(admin, dropping), lambda start: start == 1, "the oldest to be dropped")


def test_messages_that_all_groups_have_settled_are_deleted(
    node: NodeProcess, queue_topic: Callable[..., str]
) -> None:
    topic = queue_topic(queue_delete_settled="true")
    send(node, topic, *plain(b"a", b"b"))
    admin = admin_for(node.bootstrap)
    consumers = [QueueConsumer(topic, group, node.bootstrap) for group in ("one", "two")]
    try:
        taken = [receive(queue, 2) for queue in consumers]
        consumers[0].accept(*taken[0])
        assert _log_start(admin, topic) == 0
        consumers[1].accept(*taken[1])
        wait_for(lambda: _log_start(admin, topic), lambda start: start == 2, "the log's start")
    finally:
        for queue in consumers:
            queue.close()


def test_groups_from_before_messages_are_deleted_keep_theirs(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node(settings=SETTINGS)
    topic = create_topic(admin_for(node.bootstrap), "jobs", 1, {})
    send(node, topic, *plain(b"a", b"b"))
    with QueueConsumer(topic, "idle", node.bootstrap) as queue:
        assert values(receive(queue, 1)) == [b"a"]
    # Nobody of that group asks for its queue after this, so the leader has not loaded it.
    node.stop()
    node.start()
    with QueueConsumer(topic, "busy", node.bootstrap) as queue:
        taken = receive(queue, 2)
        admin = admin_for(node.bootstrap)
        _alter(admin, topic, "queue.delete.settled", "true")
        queue.accept(*taken)
        wait_for(lambda: _queue_groups(admin, topic), lambda named: named == {"busy", "idle"}, "both groups")
        with QueueConsumer(topic, "idle", node.bootstrap) as other:
            messages = receive(other, 2)
            assert values(messages) == [b"a", b"b"]
            other.accept(*messages)
        wait_for(lambda: _log_start(admin, topic), lambda start: start == 2, "the log's start")


def test_a_group_that_is_deleted_keeps_no_message(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    """It stayed among those that must settle a message, and the leader's queue of it counted for ever."""
    topic = queue_topic(queue_delete_settled="true")
    send(node, topic, *plain(b"a", b"b"))
    admin = admin_for(node.bootstrap)
    with QueueConsumer(topic, "stays", node.bootstrap) as stays:
        with QueueConsumer(topic, "goes", node.bootstrap) as goes:
            receive(goes, 2)
        stays.accept(*receive(stays, 2))
        assert _queue_groups(admin, topic) == {"stays", "goes"}
        assert _log_start(admin, topic) == 0
        admin.delete_consumer_groups(["goes"])["goes"].result(90)
        wait_for(lambda: _log_start(admin, topic), lambda start: start == 2, "the log's start")
        assert _queue_groups(admin, topic) == {"stays"}


@pytest.mark.parametrize("group", ["one,two", " one"])
def test_a_group_that_a_topic_cannot_name_is_refused(
    node: NodeProcess, queue_topic: Callable[..., str], group: str
) -> None:
    """Others were made of its name, and the topic waited for them for ever."""
    topic = queue_topic(queue_delete_settled="true")
    with (
        QueueConsumer(topic, group, node.bootstrap) as queue,
        pytest.raises(ClientError, match="has a comma"),
    ):
        queue.receive(1, 0)


def _alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(90)


def _queue_groups(admin: AdminClient, topic: str) -> set[str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return set(admin.describe_configs([resource])[resource].result(90)["queue.groups"].value.split(","))


def _log_start(admin: object, topic: str) -> int:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    place = TopicPartition(topic, 0)
    found = admin.list_offsets({place: OffsetSpec.earliest()})  # type: ignore[attr-defined]
    return found[place].result(60).offset


def test_asyncio(node: NodeProcess, queue_topic: Callable[..., str]) -> None:
    topic = queue_topic()
    send(node, topic, *plain(b"a"))

    async def main() -> bytes | None:
        async with AsyncQueueConsumer(topic, "g", node.bootstrap) as queue:
            async for message in queue:
                await queue.accept(message)
                return message.value
        return None

    assert asyncio.run(main()) == b"a"


def test_dead_letters_are_redriven_and_queues_looked_at_from_the_command_line(
    node: NodeProcess, queue_topic: Callable[..., str]
) -> None:
    topic, letters = queue_topic(), queue_topic(errors_deadletterqueue_group_enable="true")
    group = f"{topic}-g"
    cli = Cli(node.bootstrap)
    settings = [f"errors.deadletterqueue.topic.name={letters}", "share.auto.offset.reset=earliest"]
    cli.ok("queue", "configure", group, *settings)
    send(node, topic, (b"k", b"bad", {"h": "v"}), (None, b"good", {}))
    with QueueConsumer(topic, group, node.bootstrap) as queue:
        messages = receive(queue, 2)
        queue.reject(messages[0], reason="not today")
        queue.release(messages[1])
    peeked = cli.json("queue", "peek", group, topic)
    assert [
        (row["value"], row["state"], row["deliveries"]) for row in peeked if row["state"] == "available"
    ] == [("good", "available", 1)]
    # A group that nobody has used has all of it too.
    assert {row["value"] for row in cli.json("queue", "peek", f"{topic}-unused", topic)} == {"bad", "good"}
    assert metric(node, "millstream_queue_depth", group=group, topic=topic) >= 1
    assert cli.ok("queue", "redrive", letters) == b"1\n"
    with QueueConsumer(topic, group, node.bootstrap) as queue:
        back = next(message for message in receive(queue, 2) if message.value == b"bad")
        assert (back.key, dict(back.headers)) == (b"k", {"h": b"v"})
    # As with all commands, a script is not asked.
    assert cli.ok("queue", "purge", group, topic) == b"2\n"
    [row] = [row for row in cli.json("queue", "list") if row["group"] == group]
    assert (row["depth"], row["in_flight"], row["dead_letters"]) == (0, 0, 1)
    assert "`millstream queue list`" in cli.fails("group", "describe", group)
    mistyped = cli.run("queue", "describe", f"{group}x")
    assert mistyped.returncode == 0
    assert b"no consumer has used a queue of" in mistyped.stderr
    described = cli.json("queue", "describe", group)
    assert described["configs"]["errors.deadletterqueue.topic.name"] == letters
    send(node, topic, *plain(b"more"))
    assert cli.ok("queue", "consume", group, topic, "-n", "1") == b"more\n"


def test_a_letter_whose_topic_is_gone_stays_and_the_topic_is_not_made(
    node: NodeProcess, queue_topic: Callable[..., str], new_topic: Callable[[], str]
) -> None:
    letters, source, gone = queue_topic(), queue_topic(), new_topic()
    for topic in (gone, source):
        send(node, letters, (None, b"a letter", {"__dlq.errors.topic": topic}))
    assert Cli(node.bootstrap).ok("queue", "redrive", letters) == b"1\n"
    assert gone not in admin_for(node.bootstrap).list_topics(timeout=60).topics


def test_a_redrive_into_a_full_queue_says_how_far_it_came(
    node: NodeProcess, queue_topic: Callable[..., str]
) -> None:
    letters, full = queue_topic(), queue_topic(queue_max_depth="1")
    for value in (b"first", b"second"):
        send(node, letters, (None, value, {"__dlq.errors.topic": full}))
    result = Cli(node.bootstrap).run("queue", "redrive", letters)
    assert (result.returncode, result.stdout) == (1, b"1\n")
    assert f"error: sending to {full}: Broker: Policy violation (POLICY_VIOLATION)" in result.stderr.decode()
    with QueueConsumer(full, "g", node.bootstrap) as queue:
        queue.accept(*receive(queue, 1))
    assert Cli(node.bootstrap).ok("queue", "redrive", letters) == b"1\n"


def test_a_refused_message_keeps_none_of_the_others_from_being_settled(
    node: NodeProcess, queue_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges go out in several requests: those after the one with a refused message were not sent."""
    monkeypatch.setattr(queue_consumer, "_RANGES_AT_ONCE", 2)
    topic = queue_topic()
    send(node, topic, *plain(*(b"%d" % number for number in range(12))))
    with QueueConsumer(topic, f"{topic}-g", node.bootstrap) as queue:
        messages: list[QueueMessage] = []
        while len(messages) < 12:
            messages += queue.receive(12 - len(messages), 60)
        queue.reject(messages[2])
        with pytest.raises(ClientError, match="message 2 of"):
            queue.release(*messages[::2], delay=3600)
    with QueueAdmin(node.bootstrap) as admin:
        peeked, _ = admin.peek(f"{topic}-g", topic, 0, max_messages=12)
    delayed = [offset for run in peeked.runs if run.due_ms for offset in range(run.first, run.last + 1)]
    assert delayed == [0, 4, 6, 8, 10]
