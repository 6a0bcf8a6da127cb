"""Offsets by hand: commit message by message, look at what a group has committed, and let it start over."""

import os
import uuid

from millstream.client import (
    Consumer,
    ConsumerConfig,
    OffsetManager,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
TOPIC = f"offsets-{uuid.uuid4().hex[:8]}"
CONFIG = ConsumerConfig(
    bootstrap_servers=[SERVERS],
    group_id=TOPIC,
    auto_offset_reset=OffsetResetPolicy.EARLIEST,
    enable_auto_commit=False,
)


def read(count: int) -> list[int]:
    """The offsets of the next `count` messages of the group."""
    offsets: list[int] = []
    with Consumer(CONFIG) as consumer:
        consumer.subscribe([TOPIC])
        while len(offsets) < count:
            for message in consumer.poll(max_records=count - len(offsets)):
                offsets.append(message["offset"])
                # What is committed is the offset of the next message to read.
                consumer.commit({(message["topic"], message["partition"]): message["offset"] + 1})
    return offsets


def main() -> None:
    with Producer(ProducerConfig(bootstrap_servers=[SERVERS])) as producer:
        producer.send_batch(ProducerRecord(TOPIC, f"message {number}") for number in range(10))

    print("read", read(4))
    print("read", read(2))
    with OffsetManager(CONFIG) as offsets:
        print("the group continues at", offsets.fetch(TOPIC, 0))
        print("now it continues at", offsets.reset(TOPIC, 0, OffsetResetPolicy.EARLIEST))
    print("read", read(3))


if __name__ == "__main__":
    main()
