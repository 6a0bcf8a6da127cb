"""kafka-python."""

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import BrokerResponseError

from millstream.protocol.errors import ErrorCode
from support.clients.message import LARGEST_REQUEST_BYTES, PATIENCE_S, Message, ProduceFailed, Stored

LOG_APPEND_TIME = 1


class KafkaPythonClient:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def producer(self, **options: Any) -> Any:
        return KafkaProducer(
            **{
                "bootstrap_servers": self.bootstrap,
                "max_request_size": LARGEST_REQUEST_BYTES,
                "linger_ms": 5,
                **options,
            }
        )

    def consumer(self, **options: Any) -> Any:
        return KafkaConsumer(
            **{
                "bootstrap_servers": self.bootstrap,
                "group_id": None,
                "auto_offset_reset": "none",
                "fetch_max_wait_ms": 20,
                **options,
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
        # An idempotent producer, the default, knows no other level of acks than all.
        levels = {} if acks == "all" else {"acks": int(acks), "enable_idempotence": False}
        producer = self.producer(compression_type=None if codec == "none" else codec, **levels, **options)
        try:
            futures = [
                producer.send(
                    topic, each.value, each.key, list(each.headers), partition, timestamp_ms=each.timestamp_ms
                )
                for each in messages
            ]
            producer.flush(PATIENCE_S)
            return [future.get(PATIENCE_S).offset for future in futures]
        except BrokerResponseError as error:
            raise ProduceFailed(ErrorCode(error.errno).name) from error
        finally:
            producer.close(PATIENCE_S)

    def read(self, topic: str, *, partition: int = 0, start: int | None = None) -> list[Stored]:
        # One of its own: a consumer that other tests left alone for minutes has been seen to find no offsets any more.
        consumer, place = self.consumer(), TopicPartition(topic, partition)
        try:
            consumer.assign([place])
            if start is None:
                consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, start)
            return read_to_end(consumer, place)
        finally:
            consumer.close()

    def close(self) -> None:
        """Nothing is kept open."""


def read_to_end(consumer: Any, place: TopicPartition) -> list[Stored]:
    end = consumer.end_offsets([place])[place]
    stored: list[Stored] = []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position(place) < end:
        assert time.monotonic() < deadline, f"no end within {PATIENCE_S} s, {len(stored)} messages read"
        for records in consumer.poll(200).values():
            stored += map(stored_message, records)
    return stored


def stored_message(record: Any) -> Stored:
    """The same for aiokafka, whose records have the same fields."""
    return Stored(
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple(record.headers),
        record.timestamp_type == LOG_APPEND_TIME,
    )
