"""A topic made again under the same name is another topic, and clients that knew the old one find out."""

from collections.abc import Callable

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients.kinds import EVERY_CLIENT, LIBRARIES, Clients
from support.clients.message import PATIENCE_S, Message
from support.node import NodeProcess
from support.stored_batches import stored_batches
from support.topics import admin_for, create_topic
from support.waiting import wait_for


def topic_id(admin: AdminClient, topic: str) -> str:
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE_S)
    return str(described.topic_id)


def recreate(admin: AdminClient, topic: str, partitions: int = 1) -> None:
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    create_topic(admin, topic, partitions)


@pytest.mark.parametrize("client", EVERY_CLIENT)
def test_a_topic_made_again_is_empty_and_has_a_new_id(
    clients: Clients, admin: AdminClient, topic: str, client: str
) -> None:
    old_id = topic_id(admin, topic)
    clients[client].write(topic, [Message(b"old %d" % number) for number in range(10)])
    recreate(admin, topic)
    assert topic_id(admin, topic) != old_id
    assert clients[client].read(topic) == []
    clients[client].write(topic, [Message(b"new")])
    assert [(each.offset, each.value) for each in clients[client].read(topic)] == [(0, b"new")]


def test_the_files_of_the_old_topic_do_not_come_back(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    admin = admin_for(node.bootstrap)
    create_topic(admin, "topic", 3)
    with Clients(node.bootstrap) as clients:
        for partition in range(3):
            clients.confluent.write("topic", [Message(b"old")] * 10, partition=partition)
        recreate(admin, "topic", partitions=2)
        clients.confluent.write("topic", [Message(b"new")])
    for restart in (node.restart, node.crash_and_restart):
        restart()
        with Clients(node.bootstrap) as clients:
            assert [each.value for each in clients.confluent.read("topic")] == [b"new"]
            assert clients.confluent.read("topic", partition=1) == []
    assert len(stored_batches(node.partition_dir("topic"))) == 1
    wait_for(
        lambda: sorted(path.name for path in node.partition_dir("topic").parent.iterdir()),
        lambda names: names == ["partition-0"],
        "only the new topic's files are left",
    )


@pytest.mark.parametrize("client", LIBRARIES)
def test_a_producer_that_knew_the_old_topic_writes_to_the_new_one(
    clients: Clients, admin: AdminClient, topic: str, client: str
) -> None:
    """kafka-python and aiokafka name topics; librdkafka compares ids as well."""
    recreate(admin, topic)
    clients[client].write(topic, [Message(b"first")])
    recreate(admin, topic)
    clients[client].write(topic, [Message(b"second")])
    assert [each.value for each in clients[client].read(topic)] == [b"second"]


def test_a_consumer_of_the_old_topic_goes_on_in_the_new_one(
    clients: Clients, admin: AdminClient, topic: str
) -> None:
    """librdkafka fetches by topic id: the old id is refused, and new metadata leads it to the new topic."""
    clients.confluent.write(topic, [Message(b"old")] * 5)
    consumer = clients.confluent.consumer(
        auto_offset_reset="earliest", topic_metadata_refresh_fast_interval_ms=50, enable_partition_eof=False
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = [wait_for(lambda: consumer.poll(0.2), lambda m: m is not None, "the old") for _ in range(5)]
        assert [message.value() for message in seen] == [b"old"] * 5
        recreate(admin, topic)
        clients.confluent.write(topic, [Message(b"new")])
        new = wait_for(lambda: consumer.poll(0.2), lambda m: m is not None and not m.error(), "the new")
        assert (new.offset(), new.value()) == (0, b"new")
    finally:
        consumer.close()
