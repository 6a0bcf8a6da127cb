"""A producer that never stops, whatever happens to the node."""

import random
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from support.durability.ledger import Ledger, Place

PATIENCE_MS = 120_000
_MAX_WAITING = 500


class Writer:
    """Sends to one topic from a thread of its own; with `keys`, values are numbered by key instead of partition."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int = 1,
        keys: int = 0,
        value_bytes: int = 200,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.ledger = Ledger()
        self._topic = topic
        self._partitions = partitions
        self._keys = keys
        self._padding = b"." * value_bytes
        self._chance = random.Random(topic)
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": PATIENCE_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "retry.backoff.ms": 20,
                "error_cb": self._error,
                "log_level": 0,
                **(options or {}),
            }
        )
        self._thread = threading.Thread(target=self._work, name=f"writer-{topic}", daemon=True)

    def start(self) -> "Writer":
        self._thread.start()
        return self

    def finish(self) -> Ledger:
        """Send no more, and wait until all that was sent has been answered."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_MS / 1000)
        assert left == 0, f"{left} messages to {self._topic} were never answered"
        return self.ledger

    def abandon(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.purge()

    def _work(self) -> None:
        while not self._stopping.is_set():
            if len(self._producer) >= _MAX_WAITING:
                self._producer.poll(0.01)
                continue
            for _ in range(self._chance.randint(1, 30)):
                self._send()
            self._producer.poll(0)
            self._stopping.wait(self._chance.uniform(0, 0.01))

    def _send(self) -> None:
        partition = self._chance.randrange(self._partitions)
        name = f"key{self._chance.randrange(self._keys)}" if self._keys else f"{partition}"
        value = self.ledger.next_value(name)
        self._producer.produce(
            self._topic,
            self._padding + b"|" + value,
            key=name,
            partition=0 if self._keys else partition,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        content, partition, offset = message.value(), message.partition(), message.offset()
        assert content is not None
        if error is not None:
            self.ledger.failed.append(f"{value_of(content)!r}: {error}")
            return
        assert partition is not None
        # librdkafka does not know the offset when the node answers that the batch had been written before.
        if offset is not None and offset >= 0:
            self.ledger.acknowledge(Place(partition, offset), value_of(content))

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.ledger.failed.append(f"fatal: {KafkaException(error)}")


def value_of(content: bytes) -> bytes:
    return content.rpartition(b"|")[2]
