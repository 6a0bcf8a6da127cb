"""At most once: commit first, process then. A crash in between loses messages, but none is ever processed twice.

For readings where the newest matters and a missing one does not.
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
TOPIC = f"at-most-once-{uuid.uuid4().hex[:8]}"
COUNT = 10


class Crash(Exception):
    """Stands for the power failure."""


def consume(processed: list[bytes], crash_at: int | None) -> None:
    """Read to the end of the topic; with `crash_at`, fail while processing that message."""
    config = ConsumerConfig(
        bootstrap_servers=[SERVERS],
        group_id=TOPIC,
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        enable_auto_commit=False,
        max_poll_records=1,
    )
    with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        while True:
            for message in consumer.poll():
                consumer.commit(message)
                if message.offset == crash_at:
                    raise Crash
                processed.append(message.value or b"")
                if message.offset == COUNT - 1:
                    return


def main() -> None:
    with Producer(ProducerConfig(bootstrap_servers=[SERVERS])) as producer:
        producer.send_batch(ProducerRecord(TOPIC, f"reading {number}") for number in range(COUNT))

    processed: list[bytes] = []
    try:
        consume(processed, crash_at=4)
    except Crash:
        print("crashed while processing message 4")
    consume(processed, crash_at=None)

    print(f"{len(processed)} of {COUNT} processed, {len(processed) - len(set(processed))} twice")


if __name__ == "__main__":
    main()
