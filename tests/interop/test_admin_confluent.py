"""librdkafka's admin client: topics, partitions, configs, offsets and the cluster."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from support.clients.confluent import error_name
from support.clients.kinds import Clients
from support.clients.message import Message
from support.node import NodeProcess

PATIENCE_S = 90
OLD_CALL = pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")


def refusal(future: "Future[Any]") -> tuple[str, str]:
    """The error's name and text."""
    with pytest.raises(KafkaException) as refused:
        future.result(PATIENCE_S)
    error: KafkaError = refused.value.args[0]
    return error_name(error), error.str()


def configs_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    described: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return described


def alter(
    admin: AdminClient, topic: str, *changes: tuple[AlterConfigOpType, str, str | None]
) -> "Future[None]":
    entries = [ConfigEntry(key, value, incremental_operation=operation) for operation, key, value in changes]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    future: Future[None] = admin.incremental_alter_configs([resource])[resource]
    return future


def test_a_topic_is_created_as_asked_and_listed(admin: AdminClient, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    wanted = NewTopic(name, 3, 1, config={"retention.ms": "12345", "cleanup.policy": "compact,delete"})
    admin.create_topics([wanted])[name].result(PATIENCE_S)
    listed = admin.list_topics(timeout=PATIENCE_S).topics[name]
    assert listed.error is None
    assert {number: (p.leader, p.replicas, p.isrs) for number, p in listed.partitions.items()} == {
        number: (1, [1], [1]) for number in range(3)
    }
    configs = configs_of(admin, ResourceType.TOPIC, name)
    assert (configs["retention.ms"].value, configs["cleanup.policy"].value) == ("12345", "compact,delete")


def test_the_defaults_apply_where_nothing_is_said(admin: AdminClient, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    admin.create_topics([NewTopic(name, -1, -1)])[name].result(PATIENCE_S)
    assert len(admin.list_topics(name, PATIENCE_S).topics[name].partitions) == 1


def test_replicas_may_be_placed_by_hand(admin: AdminClient, new_topic: Callable[[], str]) -> None:
    name, impossible = new_topic(), new_topic()
    futures = admin.create_topics(
        [
            NewTopic(name, 2, replica_assignment=[[1], [1]]),
            NewTopic(impossible, 1, replica_assignment=[[7]]),
        ]
    )
    futures[name].result(PATIENCE_S)
    assert len(admin.list_topics(name, PATIENCE_S).topics[name].partitions) == 2
    assert refusal(futures[impossible])[0] == "INVALID_REPLICA_ASSIGNMENT"


def test_each_topic_of_a_request_succeeds_or_fails_by_itself(
    admin: AdminClient, topic: str, new_topic: Callable[[], str]
) -> None:
    good, partitions, replicas, unknown, wrong = (new_topic() for _ in range(5))
    futures = admin.create_topics(
        [
            NewTopic(good, 1, 1),
            NewTopic(topic, 1, 1),
            NewTopic("no spaces", 1, 1),
            NewTopic(partitions, 0, 1),
            NewTopic(replicas, 1, 3),
            NewTopic(unknown, 1, 1, config={"retention.mss": "1"}),
            NewTopic(wrong, 1, 1, config={"retention.ms": "soon"}),
        ]
    )
    futures[good].result(PATIENCE_S)
    assert refusal(futures[topic])[0] == "TOPIC_ALREADY_EXISTS"
    assert refusal(futures["no spaces"])[0] == "INVALID_TOPIC_EXCEPTION"
    assert refusal(futures[partitions])[0] == "INVALID_PARTITIONS"
    assert refusal(futures[replicas])[0] == "INVALID_REPLICATION_FACTOR"
    code, message = refusal(futures[unknown])
    assert code == "INVALID_CONFIG"
    assert "retention.ms" in message
    assert refusal(futures[wrong])[0] == "INVALID_CONFIG"
    existing = admin.list_topics(timeout=PATIENCE_S).topics
    assert good in existing
    assert not existing.keys() & {partitions, replicas, unknown, wrong, "no spaces"}


def test_a_name_may_have_249_letters_and_dots_collide_with_underscores(
    admin: AdminClient, clients: Clients, new_topic: Callable[[], str]
) -> None:
    longest = new_topic().ljust(249, "x")
    dotted = f"{new_topic()}.a"
    for name in (longest, dotted):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)
    for name in (longest + "x", dotted.replace(".", "_")):
        assert refusal(admin.create_topics([NewTopic(name, 1, 1)])[name])[0] == "INVALID_TOPIC_EXCEPTION"
    for text in (b"first", b"second"):
        clients.aiokafka.write(longest, [Message(text)])
        assert [each.value for each in clients.aiokafka.read(longest)] == [text]
        admin.delete_topics([longest])[longest].result(PATIENCE_S)
        admin.create_topics([NewTopic(longest, 1, 1)])[longest].result(PATIENCE_S)


@OLD_CALL
def test_validate_only_changes_nothing(admin: AdminClient, topic: str, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    futures = admin.create_topics([NewTopic(name, 2, 1), NewTopic(topic, 1, 1)], validate_only=True)
    futures[name].result(PATIENCE_S)
    assert refusal(futures[topic])[0] == "TOPIC_ALREADY_EXISTS"
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics
    admin.create_partitions([NewPartitions(topic, 5)], validate_only=True)[topic].result(PATIENCE_S)
    assert len(admin.list_topics(topic, PATIENCE_S).topics[topic].partitions) == 1
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "1"})
    admin.alter_configs([resource], validate_only=True)[resource].result(PATIENCE_S)
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"


def test_deleted_topics_are_gone_and_missing_ones_are_named(
    admin: AdminClient, topic: str, new_topic: Callable[[], str]
) -> None:
    missing = new_topic()
    futures = admin.delete_topics([topic, missing])
    futures[topic].result(PATIENCE_S)
    assert refusal(futures[missing])[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert topic not in admin.list_topics(timeout=PATIENCE_S).topics


def test_topics_are_described_with_ids(admin: AdminClient, topic: str, new_topic: Callable[[], str]) -> None:
    missing = new_topic()
    futures = admin.describe_topics(TopicCollection([topic, missing]))
    described = futures[topic].result(PATIENCE_S)
    assert described.name == topic
    assert not described.is_internal
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert [(p.id, p.leader.id, [each.id for each in p.isr]) for p in described.partitions] == [(0, 1, [1])]
    assert refusal(futures[missing])[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_partitions_are_added_and_never_removed(
    admin: AdminClient, clients: Clients, topic: str, new_topic: Callable[[], str]
) -> None:
    clients.confluent.write(topic, [Message(b"before")])
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(PATIENCE_S)
    clients.confluent.write(topic, [Message(b"in the last")], partition=3)
    assert [each.value for each in clients.confluent.read(topic)] == [b"before"]
    assert [each.value for each in clients.confluent.read(topic, partition=3)] == [b"in the last"]
    assert refusal(admin.create_partitions([NewPartitions(topic, 4)])[topic])[0] == "INVALID_PARTITIONS"
    assert refusal(admin.create_partitions([NewPartitions(topic, 2)])[topic])[0] == "INVALID_PARTITIONS"
    missing = new_topic()
    future = admin.create_partitions([NewPartitions(missing, 2)])[missing]
    assert refusal(future)[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_single_configs_are_changed(admin: AdminClient, topic: str) -> None:
    operation = AlterConfigOpType
    alter(
        admin,
        topic,
        (operation.SET, "retention.ms", "1000000"),
        (operation.APPEND, "cleanup.policy", "compact"),
    ).result(PATIENCE_S)
    configs = configs_of(admin, ResourceType.TOPIC, topic)
    assert configs["retention.ms"].value == "1000000"
    assert ConfigSource(configs["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["segment.bytes"].is_default
    alter(
        admin,
        topic,
        (operation.DELETE, "retention.ms", None),
        (operation.SUBTRACT, "cleanup.policy", "delete"),
    ).result(PATIENCE_S)
    configs = configs_of(admin, ResourceType.TOPIC, topic)
    assert configs["retention.ms"].value == "604800000"
    assert ConfigSource(configs["retention.ms"].source) is ConfigSource.DEFAULT_CONFIG
    assert configs["cleanup.policy"].value == "compact"


def test_configs_that_make_no_sense_are_refused_as_a_whole(admin: AdminClient, topic: str) -> None:
    operation = AlterConfigOpType
    future = alter(
        admin, topic, (operation.SET, "retention.ms", "5"), (operation.SET, "segment.bytes", "a lot")
    )
    code, message = refusal(future)
    assert code == "INVALID_CONFIG"
    assert "segment.bytes" in message
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"
    assert refusal(alter(admin, topic, (operation.SET, "no.such.config", "1")))[0] == "INVALID_CONFIG"
    assert refusal(alter(admin, topic, (operation.APPEND, "retention.ms", "1")))[0] == "INVALID_CONFIG"


@OLD_CALL
def test_altering_all_configs_resets_those_not_given(admin: AdminClient, topic: str) -> None:
    first = ConfigResource(
        ResourceType.TOPIC, topic, set_config={"retention.ms": "1000", "segment.ms": "2000"}
    )
    admin.alter_configs([first])[first].result(PATIENCE_S)
    second = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "3000"})
    admin.alter_configs([second])[second].result(PATIENCE_S)
    configs = configs_of(admin, ResourceType.TOPIC, topic)
    assert (configs["retention.ms"].value, configs["segment.ms"].value) == ("604800000", "3000")


def test_configs_of_a_missing_topic_and_broker_are_refused(
    admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    name = new_topic()
    topic = ConfigResource(ResourceType.TOPIC, name)
    assert refusal(admin.describe_configs([topic])[topic])[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    future = alter(admin, name, (AlterConfigOpType.SET, "retention.ms", "1"))
    assert refusal(future)[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_the_brokers_configs_are_described(admin: AdminClient, broker: NodeProcess) -> None:
    configs = configs_of(admin, ResourceType.BROKER, "1")
    assert configs["log.dir"].value == str(broker.data_dir)
    assert ConfigSource(configs["log.dir"].source) is ConfigSource.STATIC_BROKER_CONFIG
    assert configs["log.dir"].is_read_only
    assert configs["log.retention.ms"].value == "604800000"
    assert not configs["log.retention.ms"].is_read_only


def test_the_cluster_is_described(admin: AdminClient, broker: NodeProcess) -> None:
    cluster = admin.describe_cluster(request_timeout=PATIENCE_S).result(PATIENCE_S)
    assert cluster.cluster_id == admin.list_topics(timeout=PATIENCE_S).cluster_id
    assert cluster.controller.id == 1
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap]


def test_records_are_deleted_and_offsets_listed(
    admin: AdminClient, clients: Clients, topic_with: Callable[..., str]
) -> None:
    topic = topic_with(partitions=2)
    clients.confluent.write(topic, [Message(b"%d" % number) for number in range(10)])
    clients.confluent.write(topic, [Message(b"%d" % number) for number in range(3)], partition=1)
    first, second = TopicPartition(topic, 0, 4), TopicPartition(topic, 1, -1)
    deleted = admin.delete_records([first, second])
    assert deleted[first].result(PATIENCE_S).low_watermark == 4
    assert deleted[second].result(PATIENCE_S).low_watermark == 3
    place = TopicPartition(topic, 0)
    assert admin.list_offsets({place: OffsetSpec.earliest()})[place].result(PATIENCE_S).offset == 4
    assert admin.list_offsets({place: OffsetSpec.latest()})[place].result(PATIENCE_S).offset == 10
    assert [each.offset for each in clients.confluent.read(topic)] == list(range(4, 10))
    assert clients.confluent.read(topic, partition=1) == []
    beyond = TopicPartition(topic, 0, 11)
    assert refusal(admin.delete_records([beyond])[beyond])[0] == "OFFSET_OUT_OF_RANGE"
