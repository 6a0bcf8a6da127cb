"""Writes numbered messages through failures and judges what is read back: nothing acknowledged lost, nothing twice."""

import threading
import time
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

PATIENCE_S = 120.0


class AckedWriter:
    """Writes in a thread of its own, as fast as acknowledgements allow, until it is told to stop."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        pause_s: float = 0.002,
        value_bytes: int = 0,
        **options: object,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._value_bytes = value_bytes
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 180_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "socket.timeout.ms": 5_000,
                **options,
            }
        )
        self.acked: dict[int, list[int]] = defaultdict(list)
        self.sent: dict[int, int] = defaultdict(int)
        self.errors: list[KafkaError] = []
        self.longest_gap_s = 0.0
        self._last_ack = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> "AckedWriter":
        self._last_ack = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Write nothing more and wait for all that is under way."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            assert self._producer.flush(PATIENCE_S) == 0, "messages are still under way"

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def wait_for(self, more: int) -> None:
        wanted = self.count + more
        deadline = time.monotonic() + PATIENCE_S
        while self.count < wanted:
            assert time.monotonic() < deadline, (
                f"{self.count} of {wanted} were acknowledged; {self.errors[:3]}"
            )
            time.sleep(0.01)

    def _write(self) -> None:
        turn = 0
        while not self._stopping.is_set():
            partition = turn % self._partitions
            turn += 1
            number = self.sent[partition]
            try:
                self._producer.produce(
                    self._topic,
                    str(number).zfill(self._value_bytes),
                    partition=partition,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent[partition] += 1
            self._producer.poll(0)
            time.sleep(self._pause_s)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last_ack)
        self._last_ack = now
        self.acked[message.partition()].append(int(message.value() or b""))


def _end_of(consumer: Consumer, place: TopicPartition, deadline: float) -> int:
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, PATIENCE_S)[1])
        except KafkaException:
            # Leadership may move once more, and librdkafka leaves asking again to its caller.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def read_numbers(bootstrap: str, topic: str, partitions: int) -> dict[int, list[int]]:
    """Every message of the topic up to its end, by partition and in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False})
    found: dict[int, list[int]] = {}
    try:
        for partition in range(partitions):
            place = TopicPartition(topic, partition, 0)
            deadline = time.monotonic() + PATIENCE_S
            end = _end_of(consumer, place, deadline)
            consumer.assign([place])
            found[partition] = []
            while consumer.position([TopicPartition(topic, partition)])[0].offset < end:
                assert time.monotonic() < deadline, f"{len(found[partition])} of {end} were read"
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found[partition].append(int(message.value() or b""))
    finally:
        consumer.close()
    return found


def judge(writer: AckedWriter, found: dict[int, list[int]]) -> None:
    """Nothing acknowledged is missing, nothing is there twice, and everything is in the order of writing."""
    for partition, acked in writer.acked.items():
        there = found[partition]
        missing = set(acked) - set(there)
        assert not missing, f"partition {partition} lost {sorted(missing)[:5]} of {len(acked)} acknowledged"
        assert len(set(there)) == len(there), f"partition {partition} holds messages twice"
        assert there == sorted(there), f"partition {partition} is out of order"
