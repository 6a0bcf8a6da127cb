"""Times of messages: kept as the producer gave them or set by the node, and looked up by every client."""

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KpTopicPartition
from kafka.protocol.consumer import OffsetSpec as KpOffsetSpec

from support.clients.confluent import ConfluentClient
from support.clients.kinds import EVERY_CLIENT, LIBRARIES, Clients
from support.clients.message import PATIENCE_S, Message, ProduceFailed
from support.node import NodeProcess
from support.topics import admin_for, create_topic

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def confluent_lookup(clients: Clients, topic: str, timestamp_ms: int) -> int | None:
    consumer = clients.confluent.consumer()
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], PATIENCE_S)
    finally:
        consumer.close()
    return found.offset if found.offset >= 0 else None


def kafka_python_lookup(clients: Clients, topic: str, timestamp_ms: int) -> int | None:
    place = KpTopicPartition(topic, 0)
    consumer = clients.kafka_python.consumer()
    try:
        found = consumer.offsets_for_times({place: timestamp_ms})[place]
    finally:
        consumer.close()
    return None if found is None else int(found.offset)


def aiokafka_lookup(clients: Clients, topic: str, timestamp_ms: int) -> int | None:
    async def look_up() -> int | None:
        place = AioTopicPartition(topic, 0)
        async with clients.aiokafka.consumer() as consumer:
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
        return None if found is None else int(found.offset)

    return asyncio.run(look_up())


def kcat_lookup(clients: Clients, topic: str, timestamp_ms: int) -> int | None:
    output = clients.kcat.run("-Q", "-t", f"{topic}:0:{timestamp_ms}").stdout.decode()
    offset = int(output.rpartition(" ")[2])
    return offset if offset >= 0 else None


LOOKUPS: dict[str, Callable[[Clients, str, int], int | None]] = {
    "confluent": confluent_lookup,
    "kafka-python": kafka_python_lookup,
    "aiokafka": aiokafka_lookup,
    "kcat": kcat_lookup,
}


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("writer", LIBRARIES)
def test_create_time_is_kept_as_given(clients: Clients, topic: str, writer: str, codec: str) -> None:
    now = now_ms()
    given = [1, 1_000_000_000_000, now, now - HOUR_MS, now + HOUR_MS // 2, now - 1, now]
    messages = [Message(b"v" * 100, timestamp_ms=timestamp_ms) for timestamp_ms in given]
    clients[writer].write(topic, messages, codec=codec)
    for reader in clients.readers():
        stored = reader.read(topic)
        assert [each.timestamp_ms for each in stored] == given
        assert {each.log_append_time for each in stored} <= {False, None}


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_log_append_time_is_the_nodes(
    clients: Clients, topic_with: Callable[..., str], writer: str, codec: str
) -> None:
    topic = topic_with(message_timestamp_type="LogAppendTime")
    before = now_ms()
    clients[writer].write(topic, [Message(b"v" * 100, timestamp_ms=1234)] * 50, codec=codec)
    after = now_ms()
    for reader in clients.readers():
        stored = reader.read(topic)
        assert [each.content for each in stored] == [Message(b"v" * 100)] * 50
        assert all(before <= each.timestamp_ms <= after for each in stored)
        assert {each.log_append_time for each in stored} <= {True, None}


def test_producers_learn_the_log_append_time(broker: NodeProcess, topic_with: Callable[..., str]) -> None:
    topic = topic_with(message_timestamp_type="LogAppendTime")
    times: list[tuple[int, int]] = []
    before = now_ms()
    producer = ConfluentClient(broker.bootstrap).producer()
    producer.produce(
        topic, b"v", timestamp=1234, on_delivery=lambda _, message: times.append(message.timestamp())
    )
    assert producer.flush(PATIENCE_S) == 0
    ((kind, timestamp_ms),) = times
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp_ms <= now_ms()


def test_the_type_of_timestamps_changes_while_a_topic_is_used(
    clients: Clients, admin: AdminClient, topic: str
) -> None:
    clients.confluent.write(topic, [Message(b"first", timestamp_ms=1234)])
    entry = ConfigEntry(
        "message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(90)
    clients.confluent.write(topic, [Message(b"second", timestamp_ms=1234)])
    first, second = clients.kafka_python.read(topic)
    assert (first.timestamp_ms, first.log_append_time) == (1234, False)
    assert second.timestamp_ms > 1234
    assert second.log_append_time


@pytest.mark.parametrize("writer", LIBRARIES)
def test_a_time_too_far_ahead_is_refused(clients: Clients, topic: str, writer: str) -> None:
    with pytest.raises(ProduceFailed) as refused:
        clients[writer].write(topic, [Message(b"v", timestamp_ms=now_ms() + 2 * HOUR_MS)])
    assert refused.value.code == "INVALID_TIMESTAMP"
    assert clients[writer].read(topic) == []


@pytest.mark.parametrize("client", EVERY_CLIENT)
def test_offsets_are_found_by_time_in_one_and_in_many_segments(
    clients: Clients, topic_with: Callable[..., str], client: str
) -> None:
    look_up = LOOKUPS[client]
    for configs in ({}, {"segment_bytes": 300, "index_interval_bytes": 100}):
        topic = topic_with(**configs)
        assert look_up(clients, topic, 0) is None
        for start in range(0, 100, 10):
            messages = [Message(b"v" * 20, timestamp_ms=1_000_000 + 10 * n) for n in range(start, start + 10)]
            clients.confluent.write(topic, messages, codec="lz4" if start % 20 else "none")
        assert look_up(clients, topic, 0) == 0
        assert look_up(clients, topic, 1_000_000) == 0
        assert look_up(clients, topic, 1_000_001) == 1
        assert look_up(clients, topic, 1_000_430) == 43
        assert look_up(clients, topic, 1_000_435) == 44
        assert look_up(clients, topic, 1_000_990) == 99
        assert look_up(clients, topic, 1_000_991) is None


def test_out_of_order_times_give_the_first_message_that_is_late_enough(clients: Clients, topic: str) -> None:
    times = [5000, 1000, 7000, 2000, 7000, 3000]
    clients.confluent.write(topic, [Message(b"v", timestamp_ms=each) for each in times])
    wanted = {1000: 0, 5000: 0, 5001: 2, 7000: 2, 7001: None}
    for look_up in LOOKUPS.values():
        assert {timestamp_ms: look_up(clients, topic, timestamp_ms) for timestamp_ms in wanted} == wanted


def test_offsets_are_found_by_time_after_restarts(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    create_topic(
        admin_for(node.bootstrap), "topic", configs={"segment.bytes": 300, "index.interval.bytes": 100}
    )
    with Clients(node.bootstrap) as clients:
        for number in range(30):
            clients.confluent.write("topic", [Message(b"v" * 50, timestamp_ms=1_000_000 + 10 * number)])
    for restart in (node.restart, node.crash_and_restart):
        restart()
        with Clients(node.bootstrap) as clients:
            found = [kafka_python_lookup(clients, "topic", 999_995 + 50 * step) for step in range(7)]
        assert found == [0, 5, 10, 15, 20, 25, None]


def test_the_largest_timestamp_is_found(clients: Clients, admin: AdminClient, topic: str) -> None:
    place = TopicPartition(topic, 0)
    empty = admin.list_offsets({place: OffsetSpec.max_timestamp()})[place].result(90)
    assert empty.offset == -1
    clients.confluent.write(topic, [Message(b"v", timestamp_ms=each) for each in (5000, 9000, 7000)])
    found = admin.list_offsets({place: OffsetSpec.max_timestamp()})[place].result(90)
    assert (found.offset, found.timestamp) == (1, 9000)
    kp_admin = KafkaAdminClient(bootstrap_servers=clients.bootstrap)
    try:
        kp_place = KpTopicPartition(topic, 0)
        by_kp = kp_admin.list_partition_offsets({kp_place: KpOffsetSpec.MAX_TIMESTAMP})[kp_place]
    finally:
        kp_admin.close()
    assert (by_kp.offset, by_kp.timestamp) == (1, 9000)
