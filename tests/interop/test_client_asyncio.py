"""The asyncio producer and consumer against a running broker."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.client import (
    AsyncConsumer,
    AsyncProducer,
    BatchFailed,
    ClosedError,
    ConsumerConfig,
    Message,
    MessageTooLarge,
    OffsetResetPolicy,
    ProducerConfig,
    ProducerRecord,
    RoundRobinPartitioner,
    SendResult,
)
from millstream.testing import EmbeddedBroker
from support.reading import PATIENCE_S, read_topic

pytestmark = pytest.mark.millstream(scope="session")


@pytest.fixture
def topic(millstream_broker: EmbeddedBroker, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    millstream_broker.create_topics({name: 2})
    return name


@pytest.fixture
def producer(millstream_broker: EmbeddedBroker) -> Callable[..., AsyncProducer]:
    return lambda **settings: AsyncProducer(
        ProducerConfig(bootstrap_servers=millstream_broker.bootstrap_servers, **settings)
    )


@pytest.fixture
def consumer(millstream_broker: EmbeddedBroker) -> Callable[..., AsyncConsumer]:
    return lambda **settings: AsyncConsumer(
        ConsumerConfig(
            bootstrap_servers=millstream_broker.bootstrap_servers,
            auto_offset_reset=OffsetResetPolicy.EARLIEST,
            **settings,
        )
    )


def run(program: Coroutine[Any, Any, None]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await program

    asyncio.run(within_time())


async def read(consumer: AsyncConsumer, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        messages += await consumer.poll(0.2, count - len(messages))
    return messages


def test_sends_can_be_gathered(producer: Callable[..., AsyncProducer], topic: str) -> None:
    async def program() -> None:
        async with producer() as sending:
            results = await asyncio.gather(*(sending.send(topic, str(n), partition=0) for n in range(200)))
        assert [each.offset for each in results] == list(range(200))

    run(program())


def test_full_queue_makes_senders_wait_without_blocking_the_loop(
    producer: Callable[..., AsyncProducer], topic: str
) -> None:
    async def program() -> None:
        async with producer(extra={"queue.buffering.max.messages": 10}) as sending:
            results = await asyncio.gather(*(sending.send(topic, "v", partition=0) for _ in range(100)))
        assert sorted(each.offset for each in results) == list(range(100))

    run(program())


def test_failure_is_raised_where_it_was_sent(producer: Callable[..., AsyncProducer], topic: str) -> None:
    async def program() -> None:
        async with producer(max_message_size=5_000_000) as sending:
            good, bad = await asyncio.gather(
                sending.send(topic, "v"), sending.send(topic, b"x" * 2_000_000), return_exceptions=True
            )
        assert isinstance(good, SendResult)
        assert isinstance(bad, MessageTooLarge)

    run(program())


def test_batch_is_sent_and_failures_are_told(producer: Callable[..., AsyncProducer], topic: str) -> None:
    async def program() -> None:
        async with producer(max_message_size=10_000) as sending:
            results = await sending.send_batch(ProducerRecord(topic, "v", partition=1) for _ in range(10))
            assert [each.offset for each in results] == list(range(10))
            with pytest.raises(BatchFailed):
                await sending.send_batch([ProducerRecord(topic, b"x" * 20_000)])

    run(program())


def test_cancelled_send_does_not_disturb_the_others(
    producer: Callable[..., AsyncProducer], topic: str
) -> None:
    async def program() -> None:
        async with producer(linger_ms=200) as sending:
            cancelled = asyncio.ensure_future(sending.send(topic, "a", partition=0))
            other = asyncio.ensure_future(sending.send(topic, "b", partition=0))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            assert (await other).offset == 1

    run(program())


def test_partitioner_asks_the_cluster_without_blocking_the_loop(
    producer: Callable[..., AsyncProducer], topic: str
) -> None:
    async def program() -> None:
        async with producer(partitioner=RoundRobinPartitioner()) as sending:
            results = [await sending.send(topic, "v") for _ in range(4)]
        assert [each.partition for each in results] == [0, 1, 0, 1]

    run(program())


def test_closed_producer_refuses_to_send(producer: Callable[..., AsyncProducer], topic: str) -> None:
    async def program() -> None:
        sending = await producer().start()
        await sending.close()
        with pytest.raises(ClosedError):
            await sending.send(topic, "v")

    run(program())


async def _fill(producer: AsyncProducer, topic: str, count: int) -> None:
    async with producer as sending:
        await sending.send_batch(ProducerRecord(topic, str(n), partition=0) for n in range(count))


def test_messages_are_iterated_in_order_while_the_loop_goes_on(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def program() -> None:
        await _fill(producer(), topic, 500)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        offsets: list[int] = []
        async with consumer() as reading:
            await reading.assign([(topic, 0)])
            async for message in reading:
                offsets.append(message.offset)
                if len(offsets) == 500:
                    break
        counting.cancel()
        assert offsets == list(range(500))
        assert turns >= 5

    run(program())


def test_cancelled_poll_loses_nothing(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def program() -> None:
        async with consumer() as reading, producer() as sending:
            await reading.assign([(topic, 0)])
            polling = asyncio.ensure_future(reading.poll(5))
            await asyncio.sleep(0.1)
            polling.cancel()
            await sending.send_batch(ProducerRecord(topic, str(n), partition=0) for n in range(10))
            assert [each.offset for each in await read(reading, 10)] == list(range(10))

    run(program())


def test_cancelled_poll_gives_back_more_than_the_next_one_wants(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def program() -> None:
        await _fill(producer(), topic, 10)
        async with consumer() as reading:
            await reading.assign([(topic, 0)])
            polling = asyncio.ensure_future(reading.poll(5))
            await asyncio.sleep(0)
            polling.cancel()
            first = await reading.poll(5, 3)
            rest = await read(reading, 10 - len(first))
            assert len(first) <= 3
            assert [each.offset for each in first + rest] == list(range(10))

    run(program())


def test_seek_and_pause_after_a_cancelled_poll_count(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def program() -> None:
        await _fill(producer(), topic, 10)
        async with consumer() as reading:
            await reading.assign([(topic, 0)])
            await read(reading, 10)
            await reading.seek(topic, 0, 5)
            polling = asyncio.ensure_future(reading.poll(5))
            await asyncio.sleep(0)
            polling.cancel()
            await reading.pause([(topic, 0)])
            assert await reading.poll(0.2) == []
            assert reading.paused() == {(topic, 0)}
            await reading.seek(topic, 0, 2)
            await reading.resume([(topic, 0)])
            assert [each.offset for each in await read(reading, 3)] == [2, 3, 4]
            assert await reading.position(topic, 0) == 5

    run(program())


def test_iteration_ends_when_the_consumer_is_closed(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def program() -> None:
        await _fill(producer(), topic, 3)
        reading = await consumer().start()
        await reading.assign([(topic, 0)])
        count = 0
        async for _ in reading:
            count += 1
            if count == 3:
                await reading.close()
        assert count == 3

    run(program())


def test_idle_poll_leaves_the_loop_free(consumer: Callable[..., AsyncConsumer], topic: str) -> None:
    async def program() -> None:
        async with consumer() as reading:
            await reading.assign([(topic, 0)])
            polling = asyncio.ensure_future(reading.poll(0.3))
            turns = 0
            while not polling.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert polling.result() == []
            assert turns > 1

    run(program())


def test_group_goes_on_after_the_message_where_iteration_ended(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def read_in_group(count: int) -> list[int]:
        offsets: list[int] = []
        async with consumer(group_id=f"group-of-{topic}") as reading:
            await reading.subscribe([topic])
            async for message in reading:
                offsets.append(message.offset)
                if len(offsets) == count:
                    break
        return offsets

    async def program() -> None:
        await _fill(producer(), topic, 10)
        assert await read_in_group(4) == [0, 1, 2, 3]
        assert await read_in_group(6) == [4, 5, 6, 7, 8, 9]

    run(program())


def test_messages_of_a_cancelled_poll_are_not_committed(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def program() -> None:
        await _fill(producer(), topic, 10)
        async with consumer(group_id=f"group-of-{topic}") as reading:
            await reading.subscribe([topic])
            await read(reading, 3)
            polling = asyncio.ensure_future(reading.poll(5, 4))
            await asyncio.sleep(0)
            polling.cancel()
        async with consumer(group_id=f"group-of-{topic}") as reading:
            await reading.subscribe([topic])
            assert [each.offset for each in await read(reading, 7)] == [3, 4, 5, 6, 7, 8, 9]

    run(program())


def test_commit_and_committed_are_awaited(
    producer: Callable[..., AsyncProducer], consumer: Callable[..., AsyncConsumer], topic: str
) -> None:
    async def program() -> None:
        await _fill(producer(), topic, 10)
        async with consumer(group_id=f"group-of-{topic}", enable_auto_commit=False) as reading:
            await reading.subscribe([topic])
            messages = await read(reading, 10)
            await reading.commit(messages[5])
            assert await reading.committed(topic, 0) == 6
            await reading.commit()
            assert await reading.committed(topic, 0) == 10
            assert await reading.assignment() == {(topic, 0), (topic, 1)}

    run(program())


def test_what_async_writes_others_read(
    producer: Callable[..., AsyncProducer], topic: str, millstream_broker: EmbeddedBroker
) -> None:
    run(_fill(producer(), topic, 5))

    assert [each.value for each in read_topic(millstream_broker.bootstrap_servers, topic, 5)] == [
        str(n).encode() for n in range(5)
    ]
