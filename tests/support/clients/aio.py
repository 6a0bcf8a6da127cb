"""aiokafka; each call runs an event loop of its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import BrokerResponseError

from millstream.protocol.errors import ErrorCode
from support.clients.kafka_python import stored_message
from support.clients.message import LARGEST_REQUEST_BYTES, PATIENCE_S, Message, ProduceFailed, Stored


class AiokafkaClient:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def producer(self, **options: Any) -> Any:
        return AIOKafkaProducer(
            **{
                "bootstrap_servers": self.bootstrap,
                "max_request_size": LARGEST_REQUEST_BYTES,
                "linger_ms": 5,
                **options,
            }
        )

    def consumer(self, **options: Any) -> Any:
        return AIOKafkaConsumer(
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
        return asyncio.run(self._write(topic, messages, codec, acks, partition, options))

    async def _write(
        self,
        topic: str,
        messages: Sequence[Message],
        codec: str,
        acks: str,
        partition: int,
        options: dict[str, Any],
    ) -> list[int]:
        compression = None if codec == "none" else codec
        level: str | int = "all" if acks == "all" else int(acks)
        try:
            async with (
                asyncio.timeout(PATIENCE_S),
                self.producer(compression_type=compression, acks=level, **options) as producer,
            ):
                futures = [
                    await producer.send(
                        topic,
                        each.value,
                        each.key,
                        partition,
                        timestamp_ms=each.timestamp_ms,
                        headers=list(each.headers),
                    )
                    for each in messages
                ]
                written = await asyncio.gather(*futures)
        except BrokerResponseError as error:
            raise ProduceFailed(ErrorCode(error.errno).name) from error
        # With acks=0 nobody knows an offset.
        return [-1 if each is None else each.offset for each in written]

    def read(self, topic: str, *, partition: int = 0, start: int | None = None) -> list[Stored]:
        return asyncio.run(self._read(TopicPartition(topic, partition), start))

    async def _read(self, place: TopicPartition, start: int | None) -> list[Stored]:
        async with asyncio.timeout(PATIENCE_S), self.consumer() as consumer:
            consumer.assign([place])
            if start is None:
                await consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, start)
            return await read_to_end(consumer, place)

    def close(self) -> None:
        """Nothing stays open between calls."""


async def read_to_end(consumer: Any, place: TopicPartition) -> list[Stored]:
    end = (await consumer.end_offsets([place]))[place]
    stored: list[Stored] = []
    while await consumer.position(place) < end:
        for records in (await consumer.getmany(place, timeout_ms=200)).values():
            stored += map(stored_message, records)
    return stored
