"""Consumers that stay: while the node restarts, while partitions come and go, across what is deleted under them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as KpTopicPartition

from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S, Message
from support.node import NodeProcess
from support.topics import admin_for, create_topic
from support.waiting import wait_for

PER_TURN = 20
Read = Callable[[int], list[bytes]]


def turn(number: int) -> list[Message]:
    return [Message(b"turn %d message %d" % (number, each)) for each in range(PER_TURN)]


def follow_by_librdkafka(clients: Clients, check: Callable[[Read], None]) -> None:
    consumer = clients.confluent.consumer(enable_partition_eof=False, reconnect_backoff_max_ms=100)

    def read(count: int) -> list[bytes]:
        messages = [
            wait_for(lambda: consumer.poll(0.2), lambda m: m is not None and not m.error(), "a message")
            for _ in range(count)
        ]
        return [message.value() for message in messages]

    try:
        consumer.assign([TopicPartition("topic", 0, 0)])
        check(read)
    finally:
        consumer.close()


def follow_by_kafka_python(clients: Clients, check: Callable[[Read], None]) -> None:
    place = KpTopicPartition("topic", 0)
    consumer = clients.kafka_python.consumer(reconnect_backoff_max_ms=100)
    pending: list[Any] = []

    def poll() -> int:
        for records in consumer.poll(200).values():
            pending.extend(records)
        return len(pending)

    def read(count: int) -> list[bytes]:
        wait_for(poll, lambda size: size >= count, "messages")
        taken, pending[:] = pending[:count], pending[count:]
        return [record.value for record in taken]

    try:
        consumer.assign([place])
        consumer.seek(place, 0)
        check(read)
    finally:
        consumer.close()


FOLLOW = {"confluent": follow_by_librdkafka, "kafka-python": follow_by_kafka_python}


@pytest.mark.parametrize("client", list(FOLLOW))
def test_a_consumer_goes_on_after_the_node_restarts(
    start_node: Callable[..., NodeProcess], client: str
) -> None:
    """After a crash the leader's epoch is a new one, and librdkafka checks its position against it."""
    node = start_node()
    create_topic(admin_for(node.bootstrap), "topic")

    def check(read: Read) -> None:
        for number, restart in enumerate((node.crash_and_restart, node.restart, None)):
            with Clients(node.bootstrap) as writers:
                writers.kafka_python.write("topic", turn(number))
            assert read(PER_TURN) == [message.value for message in turn(number)]
            if restart is not None:
                restart()

    with Clients(node.bootstrap) as clients:
        FOLLOW[client](clients, check)


def test_aiokafka_goes_on_after_the_node_restarts(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    create_topic(admin_for(node.bootstrap), "topic")

    def write(number: int) -> None:
        with Clients(node.bootstrap) as writers:
            writers.kafka_python.write("topic", turn(number))

    async def work() -> None:
        place = AioTopicPartition("topic", 0)
        async with asyncio.timeout(2 * PATIENCE_S), clients.aiokafka.consumer() as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            for number, restart in enumerate((node.crash_and_restart, node.restart, None)):
                await asyncio.to_thread(write, number)
                values = [(await consumer.getone()).value for _ in range(PER_TURN)]
                assert values == [message.value for message in turn(number)]
                if restart is not None:
                    await asyncio.to_thread(restart)

    with Clients(node.bootstrap) as clients:
        asyncio.run(work())


def test_partitions_join_and_leave_a_fetch_session(clients: Clients, topic_with: Callable[..., str]) -> None:
    """kafka-python keeps a fetch session and tells the node only what changes."""
    topic = topic_with(partitions=4)
    places = [KpTopicPartition(topic, partition) for partition in range(4)]
    consumer = clients.kafka_python.consumer()
    seen: list[tuple[int, bytes]] = []

    def poll() -> list[tuple[int, bytes]]:
        for place, records in consumer.poll(100).items():
            seen.extend((place.partition, record.value) for record in records)
        return sorted(seen)

    def expect(assigned: list[int], text: bytes) -> None:
        """A message in each partition; only the assigned ones deliver theirs."""
        seen.clear()
        kept = {place: consumer.position(place) for place in consumer.assignment()}
        consumer.assign([places[partition] for partition in assigned])
        for partition in assigned:
            place = places[partition]
            consumer.seek(place, kept.get(place) or consumer.end_offsets([place])[place])
        for partition in range(4):
            clients.confluent.write(topic, [Message(text)], partition=partition)
        wait_for(poll, lambda found: len(found) >= len(assigned), "messages of all assigned partitions")
        assert poll() == [(partition, text) for partition in assigned]

    try:
        expect([0, 1], b"two")
        expect([0, 1, 2, 3], b"four")
        expect([3], b"one")
        expect([1, 2], b"two others")
    finally:
        consumer.close()


def test_a_consumer_is_overtaken_by_retention_and_starts_again_where_told(
    clients: Clients, admin: AdminClient, topic: str
) -> None:
    clients.confluent.write(topic, turn(0))
    consumer = clients.confluent.consumer(auto_offset_reset="earliest", enable_partition_eof=False)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        first = wait_for(lambda: consumer.poll(0.2), lambda m: m is not None, "a message")
        assert first.offset() == 0
        consumer.pause([TopicPartition(topic, 0)])
        clients.confluent.write(topic, turn(1))
        cut = TopicPartition(topic, 0, 2 * PER_TURN - 1)
        admin.delete_records([cut])[cut].result(PATIENCE_S)
        consumer.resume([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0, 1))
        after = wait_for(lambda: consumer.poll(0.2), lambda m: m is not None and not m.error(), "the rest")
        assert after.offset() == 2 * PER_TURN - 1
    finally:
        consumer.close()
