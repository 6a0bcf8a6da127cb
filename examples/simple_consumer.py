"""Reads ten messages of the topic that simple_producer.py writes to, as a member of a group.

Start it twice at the same time, and the two share the partitions. Start it again, and it goes on where it ended.
"""

import os

from millstream.client import STRING, Consumer, ConsumerConfig, OffsetResetPolicy

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
COUNT = 10


def main() -> None:
    config = ConsumerConfig(
        bootstrap_servers=[SERVERS],
        group_id="my-group",
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        enable_auto_commit=True,
        max_poll_records=500,
        value_deserializer=STRING,
    )
    with Consumer(config) as consumer:
        consumer.subscribe(["events"])
        for number, message in enumerate(consumer, 1):
            print(f"{message['topic']}/{message['partition']} at {message['offset']}: {message['value']}")
            if number == COUNT:
                break


if __name__ == "__main__":
    main()
