"""Broker settings: from the environment at start, changed while the node runs, kept over restarts."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from support.clients.confluent import error_name
from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S, Message, ProduceFailed
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

# None of the clients can name all brokers at once, which Kafka does by an empty name.
THIS_BROKER = "1"


def change(
    admin: AdminClient, broker: str, name: str, value: str | None, kind: ResourceType = ResourceType.BROKER
) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(kind, broker, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def described(admin: AdminClient, name: str, kind: ResourceType, of: str) -> tuple[str, ConfigSource]:
    resource = ConfigResource(kind, of)
    entry = admin.describe_configs([resource])[resource].result(PATIENCE_S)[name]
    return entry.value, ConfigSource(entry.source)


def test_a_changed_limit_applies_to_topics_that_have_none_of_their_own(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node()
    admin = admin_for(node.bootstrap)
    create_topic(admin, "plain")
    create_topic(admin, "own", configs={"max.message.bytes": 10_000})
    message = Message(b"x" * 5000)
    with Clients(node.bootstrap) as clients:
        clients.confluent.write("plain", [message])
        change(admin, THIS_BROKER, "message.max.bytes", "2000")
        with pytest.raises(ProduceFailed) as refused:
            clients.confluent.write("plain", [message])
        assert refused.value.code == "MESSAGE_TOO_LARGE"
        clients.confluent.write("own", [message])
        value, source = described(admin, "max.message.bytes", ResourceType.TOPIC, "plain")
        assert (value, source) == ("2000", ConfigSource.DYNAMIC_BROKER_CONFIG)
        change(admin, THIS_BROKER, "message.max.bytes", None)
        clients.confluent.write("plain", [message])


def test_changes_are_kept_over_restarts_and_crashes(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    admin = admin_for(node.bootstrap)
    create_topic(admin, "topic")
    change(admin, THIS_BROKER, "message.max.bytes", "2000")
    change(admin, THIS_BROKER, "log.retention.ms", "123456")
    change(admin, "topic", "segment.ms", "654321", ResourceType.TOPIC)
    for restart in (node.restart, node.crash_and_restart):
        restart()
        admin = admin_for(node.bootstrap)
        assert described(admin, "max.message.bytes", ResourceType.TOPIC, "topic") == (
            "2000",
            ConfigSource.DYNAMIC_BROKER_CONFIG,
        )
        assert described(admin, "retention.ms", ResourceType.TOPIC, "topic")[0] == "123456"
        assert described(admin, "segment.ms", ResourceType.TOPIC, "topic") == (
            "654321",
            ConfigSource.DYNAMIC_TOPIC_CONFIG,
        )
        with Clients(node.bootstrap) as clients, pytest.raises(ProduceFailed) as refused:
            clients.confluent.write("topic", [Message(b"x" * 5000)])
        assert refused.value.code == "MESSAGE_TOO_LARGE"


def test_what_was_set_at_start_is_shown_and_comes_back_when_a_change_is_taken_back(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node(settings={"kafka.log.retention.ms": "111"})
    admin = admin_for(node.bootstrap)
    name, kind = "log.retention.ms", ResourceType.BROKER
    assert described(admin, name, kind, THIS_BROKER) == ("111", ConfigSource.STATIC_BROKER_CONFIG)
    change(admin, THIS_BROKER, name, "333")
    assert described(admin, name, kind, THIS_BROKER) == ("333", ConfigSource.DYNAMIC_BROKER_CONFIG)
    change(admin, THIS_BROKER, name, None)
    assert described(admin, name, kind, THIS_BROKER) == ("111", ConfigSource.STATIC_BROKER_CONFIG)


def test_a_changed_retention_takes_effect(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node(settings={"storage.retention_check_interval": "50ms"})
    admin = admin_for(node.bootstrap)
    with Clients(node.bootstrap) as clients:
        clients.confluent.write("topic", [Message(b"v")])
        assert len(clients.confluent.read("topic")) == 1
        change(admin, THIS_BROKER, "log.retention.ms", "1")
        # Not by reading: the message may go between the question for the start and the fetch.
        wait_for(
            lambda: clients.confluent.start_and_end("topic"), lambda ends: ends == (1, 1), "the message goes"
        )
        assert clients.confluent.read("topic") == []


def test_a_changed_segment_size_takes_effect(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    admin = admin_for(node.bootstrap)
    with Clients(node.bootstrap) as clients:
        for _ in range(3):
            clients.confluent.write("topic", [Message(b"x" * 500)])
        assert len(list(node.partition_dir("topic").glob("*.log"))) == 1
        change(admin, THIS_BROKER, "log.segment.bytes", "600")
        for _ in range(3):
            clients.confluent.write("topic", [Message(b"x" * 500)])
        assert len(list(node.partition_dir("topic").glob("*.log"))) == 4
        assert len(clients.confluent.read("topic")) == 6


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("log.dir", "/elsewhere", "INVALID_CONFIG"),
        ("message.max.bytes", "many", "INVALID_CONFIG"),
        ("message.max.bites", "1", "INVALID_CONFIG"),
    ],
)
def test_what_cannot_be_changed_is_refused(admin: AdminClient, name: str, value: str, code: str) -> None:
    with pytest.raises(KafkaException) as refused:
        change(admin, THIS_BROKER, name, value)
    error = refused.value.args[0]
    assert error_name(error) == code
    assert name in error.str()
