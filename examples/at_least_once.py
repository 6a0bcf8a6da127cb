"""At least once: process first, commit then. A crash in between processes messages again, but none is ever lost.

The right choice when processing twice does no harm: an upsert by key, a file written under a fixed name.
"""

import os
import uuid

from millstream.client import (
    Consumer,
    ConsumerConfig,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
TOPIC = f"at-least-once-{uuid.uuid4().hex[:8]}"
COUNT = 10


class Crash(Exception):
    """Stands for the power failure."""


def consume(processed: list[bytes], crash_at: int | None) -> None:
    """Read to the end of the topic; with `crash_at`, fail after processing that message, before its commit."""
    config = ConsumerConfig(
        bootstrap_servers=[SERVERS],
        group_id=TOPIC,
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        enable_auto_commit=False,
    )
    with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        while True:
            for message in consumer.poll():
                processed.append(message.value or b"")
                if message.offset == crash_at:
                    raise Crash
                consumer.commit(message)
                if message.offset == COUNT - 1:
                    return


def main() -> None:
    with Producer(ProducerConfig(bootstrap_servers=[SERVERS])) as producer:
        producer.send_batch(ProducerRecord(TOPIC, f"order {number}") for number in range(COUNT))

    processed: list[bytes] = []
    try:
        consume(processed, crash_at=4)
    except Crash:
        print("crashed after processing message 4")
    consume(processed, crash_at=None)

    print(f"{len(set(processed))} of {COUNT} processed, {len(processed) - len(set(processed))} twice")


if __name__ == "__main__":
    main()
