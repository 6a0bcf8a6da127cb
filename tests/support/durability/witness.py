"""Consumers that look on: one that reads along while the node dies, one that reads everything in the end."""

import threading

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from support.durability.ledger import Place
from support.durability.writer import value_of
from support.waiting import wait_for


class Witness:
    """Remembers which value it saw at which offset; two different ones at the same place are a broken promise."""

    def __init__(self, bootstrap: str, topics: dict[str, int]) -> None:
        self.seen: dict[str, dict[Place, bytes]] = {topic: {} for topic in topics}
        self.contradictions: list[str] = []
        self._consumer = _consumer(bootstrap)
        places = [TopicPartition(topic, index) for topic, count in topics.items() for index in range(count)]
        self._consumer.assign(places)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="witness", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _work(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                content, partition, offset = message.value(), message.partition(), message.offset()
                if message.error() is not None or content is None or partition is None or offset is None:
                    continue
                topic = message.topic() or ""
                before = self.seen[topic].setdefault(Place(partition, offset), value_of(content))
                if before != value_of(content):
                    self.contradictions.append(
                        f"{topic} {partition}@{offset}: {before!r}, then {value_of(content)!r}"
                    )


def read_all(bootstrap: str, topic: str, partitions: int) -> tuple[dict[Place, bytes], dict[int, int]]:
    """Every value in the topic by its place, and where each partition begins."""
    consumer = _consumer(bootstrap)
    found: dict[Place, bytes] = {}
    starts: dict[int, int] = {}
    try:
        for partition in range(partitions):
            place = TopicPartition(topic, partition, OFFSET_BEGINNING)
            start, end = _answered_watermarks(consumer, place)
            while True:
                values = _read_to(consumer, place, start, end)
                before, (start, end) = start, _answered_watermarks(consumer, place)
                if start == before:
                    break
                # Retention went on meanwhile: what it took must not be mistaken for a loss.
            found.update(values)
            starts[partition] = start
    finally:
        consumer.close()
    return found, starts


def _read_to(consumer: Consumer, place: TopicPartition, position: int, end: int) -> dict[Place, bytes]:
    found: dict[Place, bytes] = {}
    consumer.assign([place])
    while position < end:
        for message in consumer.consume(1000, timeout=0.05):
            error, content, offset = message.error(), message.value(), message.offset()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, f"{place}: {error}"
                position = end
            elif content is not None and offset is not None:
                found[Place(place.partition, offset)] = value_of(content)
                position = offset + 1
    return found


def _answered_watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    marks = wait_for(
        lambda: _watermarks(consumer, place), lambda marks: marks is not None, f"{place} answers"
    )
    return marks or (0, 0)


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int] | None:
    try:
        marks = consumer.get_watermark_offsets(place, timeout=60)
    except Exception:
        return None
    return marks or None


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "witness",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
