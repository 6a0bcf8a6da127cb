"""Reading with our own consumer until everything expected is there."""

import time

from millstream.client import Consumer, ConsumerConfig, Message, OffsetResetPolicy

PATIENCE_S = 90.0


def read(consumer: Consumer, count: int) -> list[Message]:
    """Exactly `count` messages, in the order in which they came."""
    messages: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages within {PATIENCE_S} s"
        messages += consumer.poll(0.2, count - len(messages))
    return messages


def read_topic(servers: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    """The first `count` messages of a topic, without a group."""
    config = ConsumerConfig(bootstrap_servers=servers, auto_offset_reset=OffsetResetPolicy.EARLIEST)
    with Consumer(config) as consumer:
        consumer.assign([(topic, partition) for partition in range(partitions)])
        return read(consumer, count)
