"""Thousands of topics and partitions: made, listed, written to, read, kept over a restart and deleted."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S
from support.node import NodeProcess
from support.topics import admin_for, create_topic

TOPICS = [f"many-{number:04}" for number in range(2000)]
WIDE, WIDE_PARTITIONS = "wide", 1000
WRITTEN_TOPICS = TOPICS[::10]
WRITTEN_PARTITIONS = range(0, WIDE_PARTITIONS, 5)
WRITTEN = [(topic, 0) for topic in WRITTEN_TOPICS] + [(WIDE, partition) for partition in WRITTEN_PARTITIONS]


@pytest.fixture(scope="module")
def full_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("full")).start()
    try:
        admin = admin_for(node.bootstrap)
        created = admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS])
        for future in created.values():
            future.result(PATIENCE_S)
        create_topic(admin, WIDE, WIDE_PARTITIONS)
        yield node
        node.stop()
    finally:
        node.close()


def write_to_each(clients: Clients) -> None:
    producer = clients.confluent.producer(linger_ms=20)
    outcomes: list[object] = []
    for topic, partition in WRITTEN:
        value = f"{topic} {partition}".encode()
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: outcomes.append(error)
        )
    assert producer.flush(2 * PATIENCE_S) == 0
    assert outcomes == [None] * len(WRITTEN)


def read_from_each(clients: Clients) -> dict[tuple[str, int], list[bytes]]:
    consumer = clients.confluent.consumer(enable_partition_eof=False)
    found: dict[tuple[str, int], list[bytes]] = {}
    try:
        consumer.list_topics(timeout=PATIENCE_S)
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in WRITTEN])
        deadline = time.monotonic() + 2 * PATIENCE_S
        while len(found) < len(WRITTEN) and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found.setdefault((message.topic(), message.partition()), []).append(message.value())
    finally:
        consumer.close()
    return found


def test_every_client_lists_them_all(full_node: NodeProcess) -> None:
    expected = {*TOPICS, WIDE}
    listed = admin_for(full_node.bootstrap).list_topics(timeout=PATIENCE_S).topics
    assert expected <= listed.keys()
    assert len(listed[WIDE].partitions) == WIDE_PARTITIONS
    kp_admin = KafkaAdminClient(bootstrap_servers=full_node.bootstrap)
    try:
        assert expected <= set(kp_admin.list_topics())
        (wide,) = kp_admin.describe_topics([WIDE])
        assert len(wide["partitions"]) == WIDE_PARTITIONS
    finally:
        kp_admin.close()

    async def by_aiokafka() -> set[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=full_node.bootstrap)
        await admin.start()
        try:
            return set(await admin.list_topics())
        finally:
            await admin.close()

    assert expected <= asyncio.run(by_aiokafka())
    with Clients(full_node.bootstrap) as clients:
        assert clients.kcat.run("-L").stdout.count(b'topic "many-') == len(TOPICS)


def test_hundreds_are_written_and_read_before_and_after_a_restart(full_node: NodeProcess) -> None:
    with Clients(full_node.bootstrap) as clients:
        write_to_each(clients)
        expected = {(topic, partition): [f"{topic} {partition}".encode()] for topic, partition in WRITTEN}
        assert read_from_each(clients) == expected
    full_node.restart()
    with Clients(full_node.bootstrap) as clients:
        assert read_from_each(clients) == expected
    # Partitions that were never written to cost no files.
    assert len(list((full_node.data_dir / "topics").iterdir())) <= len(WRITTEN_TOPICS) + 1


def test_thousands_are_deleted_at_once(full_node: NodeProcess) -> None:
    admin: AdminClient = admin_for(full_node.bootstrap)
    doomed = [f"doomed-{number}" for number in range(1000)]
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in doomed]).values():
        future.result(PATIENCE_S)
    for future in admin.delete_topics(doomed).values():
        future.result(PATIENCE_S)
    assert not set(doomed) & admin.list_topics(timeout=PATIENCE_S).topics.keys()
