"""`millstream.client.Admin` against a node: every operation, and what it says of what cannot be done."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from millstream.client import (
    Admin,
    ClientError,
    ConfigurationError,
    Consumer,
    GroupChangedError,
    Producer,
    TopicExistsError,
    TopicPartition,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from support.node import NodeProcess
from support.waiting import wait_for


@pytest.fixture
def admin(broker: NodeProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as made:
        yield made


def fill(broker: NodeProcess, topic: str, count: int, *, at_ms: int | None = None) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(count):
            timestamp = None if at_ms is None else at_ms + number
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=timestamp)


def test_topics_come_grow_and_go(admin: Admin) -> None:
    admin.create_topic("grows", 2, configs={"retention.ms": "1000000"})
    with pytest.raises(TopicExistsError):
        admin.create_topic("grows")
    admin.create_topic("never", validate_only=True)
    admin.add_partitions("grows", 5)
    topic = admin.describe_topic("grows")
    assert [each.partition for each in topic.partitions] == [0, 1, 2, 3, 4]
    assert {each.leader for each in topic.partitions} == {each.id for each in admin.metadata().brokers}
    assert "grows" in {each.name for each in admin.list_topics()}
    admin.delete_topic("grows")
    for attempt in (admin.describe_topic, admin.delete_topic, admin.topic_configs):
        with pytest.raises(UnknownTopicError, match="there is no topic 'grows'"):
            attempt("grows")
    with pytest.raises(UnknownTopicError, match="there is no topic 'never'"):
        admin.add_partitions("never", 2)


def test_settings_are_set_and_return_to_their_defaults(admin: Admin) -> None:
    admin.create_topic("settings")
    admin.alter_topic_configs("settings", {"retention.ms": "5000", "max.message.bytes": "2000"})
    admin.alter_topic_configs("settings", to_delete=["max.message.bytes"])
    changed = {n: e.value for n, e in admin.topic_configs("settings").items() if e.source == "topic"}
    assert changed == {"retention.ms": "5000"}
    with pytest.raises(ClientError, match=r"retention\.ms"):
        admin.alter_topic_configs("settings", {"retention.ms": "soon"})
    broker = admin.metadata().brokers[0].id
    assert not admin.broker_configs(broker)["log.retention.ms"].is_sensitive
    admin.alter_broker_configs(broker, {"log.retention.ms": "777777"})
    assert admin.broker_configs(broker)["log.retention.ms"].value == "777777"
    admin.alter_broker_configs(broker, to_delete=["log.retention.ms"])


def test_offsets_by_name_and_time(broker: NodeProcess, admin: Admin) -> None:
    admin.create_topic("timed", 2)
    fill(broker, "timed", 10, at_ms=1_700_000_000_000)
    place = TopicPartition("timed", 0)
    assert admin.offsets([place], "earliest") == {place: 0}
    assert admin.offsets([place]) == {place: 10}
    assert admin.offsets([("timed", 0)], 1_700_000_000_004) == {place: 4}
    moment = datetime.fromtimestamp(1_700_000_000.007, UTC)
    assert admin.offsets([place, ("timed", 1)], moment) == {place: 7, ("timed", 1): 0}
    with pytest.raises(UnknownPartitionError, match="it has partitions 0 to 1"):
        admin.offsets([("timed", 9)])
    with pytest.raises(ConfigurationError, match="time zone"):
        admin.offsets([place], datetime(2026, 1, 1))  # noqa: DTZ001


def test_records_are_deleted_up_to_an_offset(broker: NodeProcess, admin: Admin) -> None:
    admin.create_topic("trimmed", 1)
    fill(broker, "trimmed", 10)
    assert admin.delete_records({("trimmed", 0): 4}) == {("trimmed", 0): 4}
    assert admin.describe_topic("trimmed").partitions[0].messages == 6
    assert admin.delete_records({("trimmed", 0): -1}) == {("trimmed", 0): 10}
    with pytest.raises(ClientError, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({("trimmed", 0): 99})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members(broker: NodeProcess, admin: Admin, protocol: str) -> None:
    topic, group = f"read-{protocol}", f"readers-{protocol}"
    admin.create_topic(topic, 2)
    fill(broker, topic, 6)
    with Consumer(
        broker.bootstrap,
        group_id=group,
        client_id="me",
        auto_offset_reset="earliest",
        group_protocol=protocol,
    ) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < 6:
            read += len(consumer.poll(1))
        consumer.commit()
        found = admin.describe_group(group)
        assert (found.state, found.type, found.lag) == ("Stable", protocol, 0)
        assert [member.client_id for member in found.members] == ["me"]
        assert found.members[0].assignment == ((topic, 0), (topic, 1))
        assert (group, "Stable") in {(each.group, each.state) for each in admin.list_groups()}
        with pytest.raises(GroupChangedError, match="members"):
            admin.set_offsets(group, {(topic, 0): 0})
        with pytest.raises(GroupChangedError, match="members"):
            admin.delete_group(group)
        with pytest.raises(ClientError, match="GROUP_SUBSCRIBED_TO_TOPIC"):
            admin.delete_offsets(group, [(topic, 0)])
    wait_for(lambda: admin.describe_group(group).state, "Empty".__eq__, "an empty group")
    admin.set_offsets(group, {(topic, 0): 2})
    assert admin.committed_offsets(group)[TopicPartition(topic, 0)] == 2
    assert admin.describe_group(group).lag == 4
    admin.delete_offsets(group, [(topic, 0)])
    assert TopicPartition(topic, 0) not in admin.committed_offsets(group)
    admin.delete_group(group)
    for attempt in (admin.describe_group, admin.delete_group):
        with pytest.raises(UnknownGroupError, match="there is no group"):
            attempt(group)


def test_what_brokers_have_on_disk(broker: NodeProcess, admin: Admin) -> None:
    admin.create_topic("sized", 1)
    fill(broker, "sized", 10)
    (directory,) = admin.log_dirs()
    assert directory.sizes[TopicPartition("sized", 0)] > 0
    assert directory.size_bytes >= directory.sizes[TopicPartition("sized", 0)]
