"""librdkafka's producers and consumers, and their history."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.history import History, Outcome, Poll, Seen, Send

_DELIVERY_MS = 30_000
_POLL_SECONDS = 0.2


class Recorder:
    """The history of a run; clients write to it from their threads. Times are seconds since the start."""

    def __init__(self) -> None:
        self.history = History()
        self.acknowledged: list[tuple[float, float]] = []
        """The moment, and the duration."""
        self.notes: list[str] = []
        self._lock = threading.Lock()
        self._started = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._started

    def sent(self, send: Send) -> None:
        with self._lock:
            self.history.sends.append(send)
            if send.outcome is Outcome.OK:
                self.acknowledged.append((send.end, send.end - send.start))

    def polled(self, poll: Poll) -> None:
        with self._lock:
            self.history.polls.append(poll)

    def note(self, text: str) -> None:
        with self._lock:
            self.notes.append(f"{self.now():.2f} s: {text}")


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"min.insync.replicas": str(min(2, replicas))}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
    admin.create_topics([new])[topic].result(30)


class ChaosProducer:
    """Sends to one partition, in order, with acks=all and idempotence, at most `rate` messages a second."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partition: int, rate: float, recorder: Recorder
    ) -> None:
        self._name = name
        self._bootstrap = bootstrap
        self._topic = topic
        self._partition = partition
        self._rate = rate
        self._recorder = recorder
        self._producer = self._new()
        self._fatal = threading.Event()
        self._count = 0

    def run(self, is_over: threading.Event) -> None:
        due = time.monotonic()
        while not is_over.is_set():
            if (early := due - time.monotonic()) > 0:
                # Returns as soon as a delivery is reported.
                self._producer.poll(early)
                continue
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            if self._fatal.is_set():
                self._producer.flush(_DELIVERY_MS / 1000)
                self._fatal.clear()
                self._producer = self._new()
            self._send()
        self._producer.flush(_DELIVERY_MS / 1000 + 5)

    def _new(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "delivery.timeout.ms": _DELIVERY_MS,
                "socket.timeout.ms": 5000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def _send(self) -> None:
        value, self._count = f"{self._name}-{self._count}", self._count + 1
        start = self._recorder.now()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._delivered(value, start, error, message)

        try:
            self._producer.produce(
                self._topic, value.encode(), partition=self._partition, on_delivery=delivered
            )
        except (BufferError, KafkaException) as error:
            self._recorder.note(f"{self._name}: {error}")
            self._fatal.set()

    def _delivered(self, value: str, start: float, error: KafkaError | None, message: Message) -> None:
        key = f"{self._topic}-{self._partition}"
        offset = message.offset()
        outcome = Outcome.OK if error is None else Outcome.UNKNOWN
        self._recorder.sent(
            Send(
                self._name, key, value, start, self._recorder.now(), outcome,
                offset if error is None and offset is not None and offset >= 0 else None,
            )
        )  # fmt: skip
        if error is not None:
            self._recorder.note(f"{self._name}: {value}: {error.str()}")
            if error.fatal():
                self._fatal.set()


class ChaosConsumer:
    """Reads one partition from its beginning."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partition: int,
        recorder: Recorder,
        *,
        is_final: bool = False,
    ) -> None:
        self.position = 0
        self._name = name
        self._topic = topic
        self._partition = partition
        self._key = f"{topic}-{partition}"
        self._recorder = recorder
        self._is_final = is_final
        self._is_fresh = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"chaos-{name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])

    def run(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            self.poll()
        self._consumer.close()

    def poll(self) -> int:
        start = self._recorder.now()
        messages = self._consumer.consume(500, _POLL_SECONDS)
        seen = []
        for message in messages:
            error, offset, value = message.error(), message.offset(), message.value()
            if error is not None:
                self._recorder.note(f"{self._name}: {error.str()}")
                continue
            assert offset is not None
            assert isinstance(value, bytes)
            seen.append(Seen(self._key, offset, value.decode()))
        if seen:
            self.position = seen[-1].offset + 1
            self._recorder.polled(
                Poll(self._name, tuple(seen), start, self._recorder.now(), self._is_fresh, self._is_final)
            )
            self._is_fresh = False
        return len(seen)

    def read_to_end(self, seconds: float) -> bool:
        """Whether the end was reached in time."""
        deadline = time.monotonic() + seconds
        end: int | None = None
        while time.monotonic() < deadline:
            if end is None:
                with suppress(KafkaException):
                    _, end = self._consumer.get_watermark_offsets(
                        TopicPartition(self._topic, self._partition), timeout=5, cached=False
                    )
            self.poll()
            if end is not None and self.position >= end:
                self._consumer.close()
                return True
        self._consumer.close()
        return False


class GroupConsumer:
    """A group member that reads the whole topic; after a rebalance it continues at the committed offsets."""

    def __init__(self, name: str, bootstrap: str, topic: str, recorder: Recorder) -> None:
        self._name = name
        self._recorder = recorder
        self._is_fresh = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "chaos-group",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 6000,
                "topic.metadata.refresh.interval.ms": 5000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        changed: Callable[[Consumer, list[TopicPartition]], None] = self._changed
        self._consumer.subscribe([topic], on_assign=changed, on_revoke=changed, on_lost=changed)

    def run(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            start = self._recorder.now()
            seen = []
            for message in self._consumer.consume(500, _POLL_SECONDS):
                offset, value = message.offset(), message.value()
                if message.error() is None and offset is not None and isinstance(value, bytes):
                    seen.append(Seen(f"{message.topic()}-{message.partition()}", offset, value.decode()))
            if seen:
                self._recorder.polled(
                    Poll(self._name, tuple(seen), start, self._recorder.now(), self._is_fresh)
                )
                self._is_fresh = False
        self._consumer.close()

    def _changed(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._is_fresh = True
