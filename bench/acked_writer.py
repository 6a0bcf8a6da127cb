"""A librdkafka producer that goes on while nodes die, and what became of each of its messages."""

import threading
import time
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from bench.peers import PeerError

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.005


class Acknowledged(NamedTuple):
    number: int
    sent_at: float
    at: float


class AckedWriter:
    """Numbered messages to each partition in turn, at a fixed rate, with idempotence; a context manager.

    All else is as librdkafka has it by default, but for linger.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float) -> None:
        self._bootstrap, self._topic, self._rate = bootstrap, topic, rate
        self.acknowledged: list[list[Acknowledged]] = [[] for _ in range(partitions)]
        self.errors: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def __enter__(self) -> "AckedWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        number, due = 0, time.perf_counter()
        while not self._is_over.is_set():
            if (early := due - time.perf_counter()) > 0:
                producer.poll(early)
                continue
            due = max(due + 1 / self._rate, time.perf_counter() - 1.0)
            try:
                self._send(producer, number)
                number += 1
            except (BufferError, KafkaException) as error:
                self.errors.append(str(error))
                break
        producer.flush(_PATIENCE_SECONDS)

    def _send(self, producer: Producer, number: int) -> None:
        partition, sent_at = number % len(self.acknowledged), time.perf_counter()

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acknowledged[partition].append(Acknowledged(number, sent_at, time.perf_counter()))
            else:
                self.errors.append(error.str())

        producer.produce(self._topic, str(number).encode(), partition=partition, on_delivery=delivered)

    def gap(self, partition: int, since: float) -> float:
        """The longest time without an acknowledgement from `since` to that of a message which was sent later."""
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        acknowledged = self.acknowledged[partition]
        while not acknowledged or acknowledged[-1].sent_at <= since:
            if self.errors or time.perf_counter() > deadline:
                why = self.errors[0] if self.errors else f"none within {_PATIENCE_SECONDS:.0f} s"
                raise PeerError(f"no acknowledgement from partition {partition}: {why}")
            time.sleep(_LOOK_SECONDS)
        return longest_gap(acknowledged, since)

    def stored(self) -> list[list[int]]:
        """The numbers that each partition holds, in their order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "read-back",
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        try:
            return [self._read(consumer, partition) for partition in range(len(self.acknowledged))]
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, partition: int) -> list[int]:
        place = TopicPartition(self._topic, partition, OFFSET_BEGINNING)
        bounds = consumer.get_watermark_offsets(place, timeout=_PATIENCE_SECONDS)
        if bounds is None:
            raise PeerError(f"no offsets of partition {partition}")
        consumer.assign([place])
        numbers: list[int] = []
        next_offset = 0
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while next_offset < bounds[1]:
            # Waits for as many as it is asked for, or for as long as it may.
            messages = consumer.consume(min(10_000, bounds[1] - next_offset), timeout=1.0)
            if time.perf_counter() > deadline:
                raise PeerError(f"partition {partition} cannot be read from offset {next_offset} on")
            for message in messages:
                offset, value = message.offset(), message.value()
                if message.error() is not None or offset is None or not isinstance(value, bytes):
                    raise PeerError(f"partition {partition}: {message.error()}")
                numbers.append(int(value))
                next_offset = offset + 1
        return numbers


def longest_gap(acknowledged: list[Acknowledged], since: float) -> float:
    """From the last acknowledgement before `since` to the first of a message that was sent after it."""
    first = next(at for at, each in enumerate(acknowledged) if each.at > since)
    last = next(at for at, each in enumerate(acknowledged) if each.sent_at > since)
    times = [each.at for each in acknowledged[max(first - 1, 0) : last + 1]]
    return max((after - before for before, after in pairwise(times)), default=0.0)


def lost_and_twice(acknowledged: list[list[Acknowledged]], stored: list[list[int]]) -> tuple[int, int]:
    """How many acknowledged messages are not there, and how many are there more than once or out of order."""
    lost = twice = 0
    for told, numbers in zip(acknowledged, stored, strict=True):
        lost += len({each.number for each in told} - set(numbers))
        twice += sum(count - 1 for count in Counter(numbers).values())
        twice += sum(after < before for before, after in pairwise(numbers))
    return lost, twice
