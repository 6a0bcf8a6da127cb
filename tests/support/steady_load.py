"""A producer and a group's consumer of one client library, at work in threads while a test does harm to the cluster."""

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

PATIENCE_S = 120.0
_PAUSE_S = 0.005


class SteadyLoad(ABC):
    """Numbers, in order, to one partition. `errors` are those that an application would see."""

    name = ""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.acked: list[int] = []
        self.seen: dict[int, int] = {}
        """What was read at which offset, once or again after a rebalance."""
        self.errors: list[BaseException] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self.write, self.read)
        ]

    @abstractmethod
    def write(self) -> None:
        """Numbers until it is over; runs in a thread."""

    @abstractmethod
    def read(self) -> None:
        """As a member of a group, until it is over; runs in a thread."""

    def __enter__(self) -> "SteadyLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(3 * PATIENCE_S)

    def wait_for(self, more: int) -> None:
        """Until as many more are acknowledged, and have been read."""
        written, read = len(self.acked) + more, len(self.seen) + more
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acked) < written or len(self.seen) < read:
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, (
                f"{self.name}: {len(self.acked)} of {written} written, {len(self.seen)} of {read} read"
            )
            time.sleep(0.02)

    def judge(self) -> None:
        assert not self.errors, self.errors
        values = [self.seen[offset] for offset in sorted(self.seen)]
        assert values == list(range(len(values))), "lost, twice or out of order"
        assert set(self.acked) <= set(values)

    def saw(self, records: list[Any]) -> None:
        for record in records:
            self.saw_at(record.offset, int(record.value))

    def saw_at(self, offset: int, number: int) -> None:
        known = self.seen.setdefault(offset, number)
        assert known == number, f"{known} and {number} at offset {offset}"

    def delivered(self, number: int, error: BaseException | None) -> None:
        if error is None:
            self.acked.append(number)
        else:
            self.errors.append(error)

    @property
    def is_read(self) -> bool:
        return (
            self._is_over.is_set() and not self._threads[0].is_alive() and len(self.seen) >= len(self.acked)
        )

    def is_time_left(self, since: float | None) -> bool:
        return since is None or time.monotonic() - since < PATIENCE_S

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(error)


class LibrdkafkaLoad(SteadyLoad):
    name = "librdkafka"

    def write(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        number = 0
        while not self._is_over.is_set():
            producer.produce(
                self.topic,
                str(number).encode(),
                partition=0,
                on_delivery=lambda error, _, n=number: self.delivered(n, error and KafkaException(error)),
            )
            number += 1
            producer.poll(_PAUSE_S)
        producer.flush(PATIENCE_S)

    def read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "steady",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic])
        with contextlib.closing(consumer):
            over: float | None = None
            while not self.is_read and self.is_time_left(over):
                if self._is_over.is_set():
                    over = over or time.monotonic()
                for message in consumer.consume(500, timeout=0.2):
                    if message.error() is None:
                        offset = message.offset()
                        assert offset is not None
                        self.saw_at(offset, int(message.value() or b""))


class KafkaPythonLoad(SteadyLoad):
    name = "kafka-python"

    def write(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True, linger_ms=5
        )
        number = 0
        while not self._is_over.is_set():
            future = producer.send(self.topic, str(number).encode(), partition=0)
            future.add_callback(lambda _, n=number: self.delivered(n, None))
            future.add_errback(lambda error, n=number: self.delivered(n, error))
            number += 1
            time.sleep(_PAUSE_S)
        producer.flush(PATIENCE_S)
        producer.close(PATIENCE_S)

    def read(self) -> None:
        consumer = KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id="steady",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        )
        with contextlib.closing(consumer):
            over: float | None = None
            while not self.is_read and self.is_time_left(over):
                if self._is_over.is_set():
                    over = over or time.monotonic()
                for records in consumer.poll(200).values():
                    self.saw(records)


class AiokafkaLoad(SteadyLoad):
    name = "aiokafka"

    def write(self) -> None:
        asyncio.run(self._write())

    def read(self) -> None:
        asyncio.run(self._read())

    async def _write(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True, linger_ms=5
        )
        async with producer:
            number = 0
            while not self._is_over.is_set():
                future = await producer.send(self.topic, str(number).encode(), partition=0)
                future.add_done_callback(lambda done, n=number: self.delivered(n, done.exception()))
                number += 1
                await asyncio.sleep(_PAUSE_S)
            await producer.flush()

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id="steady",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        )
        async with consumer:
            over: float | None = None
            while not self.is_read and self.is_time_left(over):
                if self._is_over.is_set():
                    over = over or time.monotonic()
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    self.saw(records)
