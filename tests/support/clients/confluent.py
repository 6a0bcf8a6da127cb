"""confluent-kafka, which is librdkafka."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from millstream.protocol.errors import ErrorCode
from support.clients.message import LARGEST_REQUEST_BYTES, PATIENCE_S, Message, ProduceFailed, Stored

# librdkafka writes every lost connection to stderr, and tests stop nodes all the time.
SILENT = 0


class ConfluentClient:
    name = "confluent"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._consumer: Consumer | None = None

    def producer(self, **options: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": SILENT,
                "message.max.bytes": LARGEST_REQUEST_BYTES,
                "linger.ms": 5,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": SILENT,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )

    def write(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        partition: int = 0,
        **options: Any,
    ) -> list[int]:
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            offsets.append(message.offset())
            if error is not None:
                errors.append(error)

        producer = self.producer(compression_type=codec, acks=acks, **options)
        for message in messages:
            # Without a timestamp librdkafka takes the time of the call.
            producer.produce(
                topic,
                message.value,
                message.key,
                partition,
                on_delivery=delivered,
                timestamp=message.timestamp_ms or 0,
                headers=list(message.headers) or None,
            )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0, "messages are still under way"
        if errors:
            raise ProduceFailed(error_name(errors[0]))
        return offsets

    def read(self, topic: str, *, partition: int = 0, start: int | None = None) -> list[Stored]:
        place = TopicPartition(topic, partition)
        # Asking first makes the leader known; an assignment alone looks for it only twice a second.
        low, _ = self.start_and_end(topic, partition)
        place.offset = low if start is None else start
        self._consumer.assign([place])
        try:
            return read_to_end(self._consumer)
        finally:
            self._consumer.unassign()

    def start_and_end(self, topic: str, partition: int = 0) -> tuple[int, int]:
        if self._consumer is None:
            self._consumer = self.consumer()
        start, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S)
        return start, end

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def read_to_end(consumer: Consumer, partitions: int = 1) -> list[Stored]:
    """What the assigned partitions hold; the consumer must report ends."""
    stored: list[Stored] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            stored.append(stored_message(message))
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        elif (partitions := partitions - 1) == 0:
            return stored
    raise AssertionError(f"no end within {PATIENCE_S} s, {len(stored)} messages read")


def stored_message(message: Any) -> Stored:
    kind, timestamp_ms = message.timestamp()
    return Stored(
        message.offset(),
        timestamp_ms,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )


def error_name(error: KafkaError) -> str:
    """Kafka's name for an error of the broker, librdkafka's for one of its own, which has a negative number."""
    return ErrorCode(error.code()).name if error.code() > 0 else str(error.name())
