"""Backpressure: reading stops while the work waiting is too much, and goes on when there is room.

The consumer keeps polling while it is paused, so it stays in its group and keeps its partitions.
"""

import os
import queue
import threading
import time
import uuid

from millstream.client import (
    Consumer,
    ConsumerConfig,
    Message,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
TOPIC = f"jobs-{uuid.uuid4().hex[:8]}"
COUNT = 200
HIGH, LOW, AT_ONCE = 30, 10, 10


def work(jobs: "queue.Queue[Message]", done: list[Message]) -> None:
    while len(done) < COUNT:
        done.append(jobs.get())
        time.sleep(0.01)


def main() -> None:
    with Producer(ProducerConfig(bootstrap_servers=[SERVERS])) as producer:
        producer.send_batch(ProducerRecord(TOPIC, f"job {number}") for number in range(COUNT))

    jobs: queue.Queue[Message] = queue.Queue()
    done: list[Message] = []
    worker = threading.Thread(target=work, args=(jobs, done))
    worker.start()
    config = ConsumerConfig(
        bootstrap_servers=[SERVERS],
        group_id=TOPIC,
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        enable_auto_commit=False,
        max_poll_records=AT_ONCE,
    )
    pauses, longest = 0, 0
    with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        while len(done) < COUNT:
            for message in consumer.poll(0.01):
                jobs.put(message)
            longest = max(longest, jobs.qsize())
            if jobs.qsize() >= HIGH and not consumer.paused():
                consumer.pause(consumer.assignment())
                pauses += 1
            elif jobs.qsize() <= LOW and consumer.paused():
                consumer.resume(consumer.paused())
        worker.join()
        consumer.commit(done[-1])

    print(f"{len(done)} jobs done; never more than {longest} waiting; paused at least once: {pauses > 0}")


if __name__ == "__main__":
    main()
