"""A pipeline in asyncio: read from one topic, work on many messages at once, write to another, then commit."""

import asyncio
import os
import uuid
from typing import Any

from millstream.client import (
    JSON,
    AsyncConsumer,
    AsyncProducer,
    ConsumerConfig,
    OffsetResetPolicy,
    ProducerConfig,
    ProducerRecord,
)

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
RUN = uuid.uuid4().hex[:8]
RAW, CLEAN = f"raw-{RUN}", f"clean-{RUN}"
COUNT = 200


async def clean(reading: dict[str, Any]) -> dict[str, Any]:
    """Stands for a call to another service."""
    await asyncio.sleep(0.001)
    return {**reading, "celsius": round((reading["fahrenheit"] - 32) / 1.8, 1)}


async def main() -> None:
    producer_config = ProducerConfig(bootstrap_servers=[SERVERS], value_serializer=JSON)
    consumer_config = ConsumerConfig(
        bootstrap_servers=[SERVERS],
        group_id=f"cleaning-{RUN}",
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        enable_auto_commit=False,
        value_deserializer=JSON,
    )
    async with AsyncProducer(producer_config) as producer, AsyncConsumer(consumer_config) as consumer:
        await producer.send_batch(
            ProducerRecord(RAW, {"sensor": number, "fahrenheit": 60 + number % 40}) for number in range(COUNT)
        )
        await consumer.subscribe([RAW])
        done = 0
        while done < COUNT:
            messages = await consumer.poll()
            cleaned = await asyncio.gather(*(clean(message.value or {}) for message in messages))
            await asyncio.gather(
                *(producer.send(CLEAN, value, key=str(value["sensor"])) for value in cleaned)
            )
            await consumer.commit()
            done += len(messages)

    print(f"{done} readings cleaned")


if __name__ == "__main__":
    asyncio.run(main())
