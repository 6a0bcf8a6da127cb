"""Consumers that place themselves: assign, seek, pause, small and patient fetches, isolation, resets."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import OffsetOutOfRangeError as AioOffsetOutOfRangeError
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as KpTopicPartition
from kafka.errors import OffsetOutOfRangeError as KpOffsetOutOfRangeError

from support.clients import aio, confluent, kafka_python
from support.clients.kinds import Clients
from support.clients.message import PATIENCE_S, Message
from support.waiting import wait_for

NUMBERS = [Message(b"%d" % number) for number in range(100)]


def next_message(consumer: Consumer) -> Any:
    return wait_for(lambda: consumer.poll(0.2), lambda m: m is not None and m.error() is None, "a message")


@pytest.fixture
def numbers(clients: Clients, topic: str) -> str:
    """A topic with the messages 0 to 99, in batches of ten."""
    for start in range(0, 100, 10):
        clients.confluent.write(topic, NUMBERS[start : start + 10], codec="lz4")
    return topic


def test_librdkafka_seeks_pauses_and_resumes(clients: Clients, numbers: str) -> None:
    consumer = clients.confluent.consumer(enable_partition_eof=False)
    place = TopicPartition(numbers, 0, 50)
    try:
        consumer.assign([place])
        assert next_message(consumer).offset() == 50
        consumer.seek(TopicPartition(numbers, 0, 7))
        assert [next_message(consumer).offset() for _ in range(3)] == [7, 8, 9]
        consumer.pause([place])
        assert consumer.poll(0.3) is None
        consumer.resume([place])
        assert next_message(consumer).offset() == 10
        assert consumer.position([place])[0].offset == 11
        consumer.seek(TopicPartition(numbers, 0, OFFSET_END))
        assert consumer.poll(0.3) is None

        def late() -> Any:
            """The end is asked for in the background: what is written before the answer is not seen."""
            clients.confluent.write(numbers, [Message(b"late")])
            return consumer.poll(0.2)

        message = wait_for(late, lambda m: m is not None and m.error() is None, "a message")
        assert message.value() == b"late"
    finally:
        consumer.close()


def test_kafka_python_seeks_pauses_and_resumes(clients: Clients, numbers: str) -> None:
    place = KpTopicPartition(numbers, 0)
    consumer = clients.kafka_python.consumer()

    def offsets(count: int) -> list[int]:
        records = wait_for(lambda: consumer.poll(200, max_records=count), bool, "records")
        return [record.offset for record in records[place]]

    try:
        consumer.assign([place])
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 100}
        consumer.seek(place, 50)
        assert offsets(2) == [50, 51]
        consumer.seek(place, 7)
        assert offsets(3) == [7, 8, 9]
        consumer.pause(place)
        assert consumer.poll(200) == {}
        consumer.resume(place)
        assert offsets(1) == [10]
        assert consumer.position(place) == 11
        assert consumer.highwater(place) == 100
        consumer.seek_to_end(place)
        assert consumer.position(place) == 100
    finally:
        consumer.close()


def test_aiokafka_seeks_pauses_and_resumes(clients: Clients, numbers: str) -> None:
    async def work() -> None:
        place = AioTopicPartition(numbers, 0)
        async with asyncio.timeout(PATIENCE_S), clients.aiokafka.consumer() as consumer:
            consumer.assign([place])
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 100}
            consumer.seek(place, 50)
            assert (await consumer.getone()).offset == 50
            consumer.seek(place, 7)
            assert [(await consumer.getone()).offset for _ in range(3)] == [7, 8, 9]
            consumer.pause(place)
            assert await consumer.getmany(timeout_ms=200) == {}
            consumer.resume(place)
            assert (await consumer.getone()).offset == 10
            assert await consumer.position(place) == 11
            await consumer.seek_to_end(place)
            assert await consumer.position(place) == 100

    asyncio.run(work())


@pytest.mark.parametrize("offset", [5, 500])
def test_an_offset_out_of_range_is_reported_to_each_client(
    clients: Clients, admin: AdminClient, numbers: str, offset: int
) -> None:
    cut = TopicPartition(numbers, 0, 20)
    admin.delete_records([cut])[cut].result(PATIENCE_S)
    with pytest.raises(KafkaException) as refused:
        clients.confluent.read(numbers, start=offset)
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    kp = clients.kafka_python.consumer()
    try:
        place = KpTopicPartition(numbers, 0)
        kp.assign([place])
        kp.seek(place, offset)
        with pytest.raises(KpOffsetOutOfRangeError):
            wait_for(lambda: kp.poll(200), bool, "an error")
    finally:
        kp.close()

    async def by_aiokafka() -> None:
        place = AioTopicPartition(numbers, 0)
        async with asyncio.timeout(PATIENCE_S), clients.aiokafka.consumer() as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            with pytest.raises(AioOffsetOutOfRangeError):
                await consumer.getone()

    asyncio.run(by_aiokafka())


@pytest.mark.parametrize(("reset", "first"), [("earliest", 20), ("latest", 100)])
def test_a_consumer_out_of_range_goes_where_it_is_told(
    clients: Clients, admin: AdminClient, numbers: str, reset: str, first: int
) -> None:
    cut = TopicPartition(numbers, 0, 20)
    admin.delete_records([cut])[cut].result(PATIENCE_S)
    consumer = clients.confluent.consumer(auto_offset_reset=reset, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(numbers, 0, 3)])
        stored = confluent.read_to_end(consumer)
        assert [each.offset for each in stored] == list(range(first, 100))
    finally:
        consumer.close()


def test_fetches_smaller_than_a_batch_still_move_on(clients: Clients, topic: str) -> None:
    messages = [Message(bytes([number]) * 5000) for number in range(40)]
    clients.confluent.write(topic, messages)
    consumer = clients.confluent.consumer(
        fetch_message_max_bytes=100, fetch_max_bytes=1000, message_max_bytes=1000
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [each.content for each in confluent.read_to_end(consumer)] == messages
    finally:
        consumer.close()
    kp = clients.kafka_python.consumer(max_partition_fetch_bytes=100, fetch_max_bytes=200)
    try:
        place = KpTopicPartition(topic, 0)
        kp.assign([place])
        kp.seek_to_beginning(place)
        assert [each.content for each in kafka_python.read_to_end(kp, place)] == messages
    finally:
        kp.close()

    async def by_aiokafka() -> None:
        place = AioTopicPartition(topic, 0)
        options = {"max_partition_fetch_bytes": 100, "fetch_max_bytes": 200}
        async with asyncio.timeout(PATIENCE_S), clients.aiokafka.consumer(**options) as consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            assert [each.content for each in await aio.read_to_end(consumer, place)] == messages

    asyncio.run(by_aiokafka())


def test_small_fetches_starve_no_partition(clients: Clients, topic_with: Callable[..., str]) -> None:
    topic = topic_with(partitions=5)
    for partition in range(5):
        clients.confluent.write(topic, [Message(b"x" * 500)] * 50, partition=partition)
    consumer = clients.confluent.consumer(fetch_max_bytes=2000, message_max_bytes=2000)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(5)])
        assert len(confluent.read_to_end(consumer, partitions=5)) == 250
    finally:
        consumer.close()


def test_a_fetch_waits_for_its_minimum_of_bytes(clients: Clients, topic: str) -> None:
    """With a minute to wait, only the bytes that complete the minimum can end the wait within the test."""
    consumer = clients.confluent.consumer(
        fetch_min_bytes=20_000, fetch_wait_max_ms=60_000, socket_timeout_ms=90_000, enable_partition_eof=False
    )
    try:
        consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        clients.confluent.write(topic, [Message(b"too few")])
        assert consumer.poll(1.0) is None
        clients.confluent.write(topic, [Message(b"x" * 1000)] * 30)
        assert next_message(consumer).value() == b"too few"
    finally:
        consumer.close()


def test_a_fetch_ends_after_its_wait_with_what_there_is(clients: Clients, topic: str) -> None:
    clients.confluent.write(topic, [Message(b"few")])
    consumer = clients.confluent.consumer(fetch_min_bytes=1_000_000, fetch_wait_max_ms=200)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert next_message(consumer).value() == b"few"
    finally:
        consumer.close()


def test_a_waiting_fetch_gets_a_message_when_it_comes(clients: Clients, topic: str) -> None:
    consumer = clients.confluent.consumer(
        fetch_wait_max_ms=60_000, socket_timeout_ms=90_000, enable_partition_eof=False
    )
    try:
        consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.3) is None
        for number in range(20):
            clients.confluent.write(topic, [Message(b"%d" % number)])
            assert next_message(consumer).value() == b"%d" % number
    finally:
        consumer.close()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_read_a_plain_topic(clients: Clients, numbers: str, level: str) -> None:
    consumer = clients.confluent.consumer(isolation_level=level)
    try:
        consumer.assign([TopicPartition(numbers, 0, 0)])
        assert [each.content for each in confluent.read_to_end(consumer)] == NUMBERS
    finally:
        consumer.close()
    kp = clients.kafka_python.consumer(isolation_level=level)
    try:
        place = KpTopicPartition(numbers, 0)
        kp.assign([place])
        kp.seek_to_beginning(place)
        assert [each.content for each in kafka_python.read_to_end(kp, place)] == NUMBERS
    finally:
        kp.close()

    async def by_aiokafka() -> None:
        place = AioTopicPartition(numbers, 0)
        async with asyncio.timeout(PATIENCE_S), clients.aiokafka.consumer(isolation_level=level) as consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            assert [each.content for each in await aio.read_to_end(consumer, place)] == NUMBERS

    asyncio.run(by_aiokafka())


def test_many_consumers_read_while_a_producer_writes(
    clients: Clients, topic_with: Callable[..., str]
) -> None:
    partitions, per_partition, readers = 4, 500, 24
    topic = topic_with(partitions=partitions)
    places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    received: list[dict[int, list[bytes]]] = [{} for _ in range(readers)]

    def read(mine: dict[int, list[bytes]]) -> None:
        consumer = clients.confluent.consumer(enable_partition_eof=False)
        try:
            consumer.get_watermark_offsets(places[0], PATIENCE_S)
            consumer.assign(places)
            deadline = time.monotonic() + PATIENCE_S
            while sum(map(len, mine.values())) < partitions * per_partition and time.monotonic() < deadline:
                for message in consumer.consume(500, 0.1):
                    assert message.error() is None
                    mine.setdefault(message.partition(), []).append(message.value())
        finally:
            consumer.close()

    threads = [threading.Thread(target=read, args=(mine,)) for mine in received]
    for thread in threads:
        thread.start()
    producer = clients.confluent.producer()
    for number in range(per_partition):
        for partition in range(partitions):
            producer.produce(topic, b"%d" % number, partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    for thread in threads:
        thread.join()
    expected = {partition: [b"%d" % n for n in range(per_partition)] for partition in range(partitions)}
    assert all(mine == expected for mine in received)
