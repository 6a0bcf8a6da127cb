"""A partitioner of one's own: each big customer has a partition for itself, all others share the rest."""

import os
import uuid
from collections import Counter

from millstream.client import Partitioner, Producer, ProducerConfig, ProducerRecord, partition_of

SERVERS = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
TOPIC = f"orders-{uuid.uuid4().hex[:8]}"


class CustomerPartitioner(Partitioner):
    def __init__(self, big: list[str]) -> None:
        self._own = {customer.encode(): number for number, customer in enumerate(big)}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        del topic, value
        shared = partition_count - len(self._own)
        if shared < 1:
            # A topic with too few partitions for this: better all mixed than none sent.
            return partition_of(key or b"", partition_count)
        if key in self._own:
            return self._own[key]
        return len(self._own) + partition_of(key or b"", shared)


def main() -> None:
    create_topic(partitions=6)
    config = ProducerConfig(bootstrap_servers=[SERVERS], partitioner=CustomerPartitioner(["acme", "globex"]))
    customers = ["acme", "globex", *(f"customer-{number}" for number in range(20))]
    with Producer(config) as producer:
        results = producer.send_batch(ProducerRecord(TOPIC, "order", key=customer) for customer in customers)

    print(f"acme: partition {results[0].partition}, globex: partition {results[1].partition}")
    print("the others:", dict(sorted(Counter(result.partition for result in results[2:]).items())))


def create_topic(partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": SERVERS})
    admin.create_topics([NewTopic(TOPIC, partitions)])[TOPIC].result()


if __name__ == "__main__":
    main()
