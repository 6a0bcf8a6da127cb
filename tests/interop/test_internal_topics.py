"""The topic in which groups live: made with the first of them, compacted while they use it, kept over crashes."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from support.clients.confluent import SILENT, error_name
from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S, Message, ProduceFailed
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

OFFSETS = "__consumer_offsets"
SETTINGS = {"storage.cleaner_interval": "50ms", "kafka.offsets.topic.num.partitions": "1"}
COMMITS = 300


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    node = start_node(settings=SETTINGS)
    create_topic(admin_for(node.bootstrap), "t")
    return node


def topics_of(node: NodeProcess) -> set[str]:
    return set(admin_for(node.bootstrap).list_topics(timeout=PATIENCE_S).topics)


def member(node: NodeProcess, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "log_level": SILENT})


def commit(node: NodeProcess, group: str, *offsets: int) -> None:
    consumer = member(node, group)
    for offset in offsets:
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def committed(node: NodeProcess, group: str) -> int:
    consumer = member(node, group)
    (place,) = consumer.committed([TopicPartition("t", 0)], PATIENCE_S)
    consumer.close()
    return int(place.offset)


def make_segments_small(admin: AdminClient) -> None:
    wanted = {"segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_it_is_made_with_the_first_group_and_is_compacted(node: NodeProcess) -> None:
    assert OFFSETS not in topics_of(node)
    commit(node, "first", 1)
    assert OFFSETS in topics_of(node)
    admin, resource = admin_for(node.bootstrap), ConfigResource(ResourceType.TOPIC, OFFSETS)
    configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert configs["cleanup.policy"].value == "compact"


def test_commits_are_cleaned_away_by_later_ones_and_the_last_survive_crash_and_restart(
    node: NodeProcess,
) -> None:
    commit(node, "quiet", 7)
    make_segments_small(admin_for(node.bootstrap))
    commit(node, "busy", *range(COMMITS))

    def bytes_on_disk() -> int:
        return sum(file.stat().st_size for file in node.partition_dir(OFFSETS).glob("*.log"))

    wait_for(bytes_on_disk, lambda size: size < 10_000, "old commits are cleaned away")
    for restart in (node.crash_and_restart, node.restart):
        restart()
        assert committed(node, "quiet") == 7
        assert committed(node, "busy") == COMMITS - 1
    commit(node, "busy", COMMITS)
    assert committed(node, "busy") == COMMITS


def test_clients_can_neither_write_to_it_nor_change_or_delete_it(node: NodeProcess) -> None:
    commit(node, "first", 5)
    with Clients(node.bootstrap) as clients, pytest.raises(ProduceFailed) as refused:
        clients.confluent.write(OFFSETS, [Message(b"v", b"k")])
    assert refused.value.code == "INVALID_TOPIC_EXCEPTION"
    admin = admin_for(node.bootstrap)
    with pytest.raises(KafkaException) as grown:
        admin.create_partitions([NewPartitions(OFFSETS, 2)])[OFFSETS].result(PATIENCE_S)
    assert error_name(grown.value.args[0]) == "INVALID_TOPIC_EXCEPTION"
    with pytest.raises(KafkaException) as deleted:
        admin.delete_topics([OFFSETS])[OFFSETS].result(PATIENCE_S)
    assert error_name(deleted.value.args[0]) == "INVALID_TOPIC_EXCEPTION"
    assert committed(node, "first") == 5
