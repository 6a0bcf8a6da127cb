"""Sends ten messages: some and forget, some and ask where they went, some at once.

MILLSTREAM_BOOTSTRAP names the broker; without it, localhost:9092.
"""

import os

from millstream.client import AckMode, Producer, ProducerConfig, ProducerRecord

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")


def main() -> None:
    config = ProducerConfig(bootstrap_servers=[SERVERS], acks=AckMode.ALL, linger_ms=10)
    with Producer(config) as producer:
        for number in range(4):
            producer.send(topic="events", key=f"user-{number}", value=f"Hello World {number}")

        result = producer.send(topic="events", key="user-4", value="Hello World 4").result()
        print(f"stored in {result.topic}, partition {result.partition}, at offset {result.offset}")

        records = [
            ProducerRecord("events", f"Hello World {number}", f"user-{number}") for number in range(5, 10)
        ]
        results = producer.send_batch(records)
        print(f"and {len(results)} more in one batch")


if __name__ == "__main__":
    main()
