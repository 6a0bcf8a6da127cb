"""`millstream.client` next to raw confluent-kafka, with the same properties, in the same process, round by round.

Both sides do what an application does: the producers learn where every message was stored, the consumers look at every
message's error and value. Building the messages is part of sending them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from bench.peers import Durability, PeerError
from bench.peers.millstream import Millstream
from bench.scenarios.names import (
    CLIENT_POLL,
    CLIENT_SEND_BATCH,
    client_cpu_overhead,
    client_name,
    client_overhead,
)
from bench.session import Session
from millstream.client import (
    Consumer,
    ConsumerConfig,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
    ProducerRecord,
)

NAME = "client"
_PARTITIONS = 4
_VALUE = b"x" * 100
_BATCH = 10_000
_POLL_RECORDS = 500
_PATIENCE_S = 60.0


class ClientFailedError(PeerError):
    """A message was not stored, or not read in time."""


def run(session: Session) -> None:
    # Many short rounds rather than few long ones: a pair of neighbours sees the same machine.
    rounds = session.plan.rounds_of(full=31, quick=5)
    batches = 5 if session.plan.quick else 10
    with session.millstream() as broker:
        session.warm_up(broker)
        _run_producers(session, broker, rounds, batches)
        # Reading is faster than sending, and a round should last long enough to mean something.
        _run_consumers(session, broker, rounds, batches * 4)


def _run_producers(session: Session, broker: Millstream, rounds: int, batches: int) -> None:
    config = ProducerConfig(bootstrap_servers=broker.bootstrap, enable_idempotence=False)
    topic = session.unique("client")
    broker.create_topic(topic, _PARTITIONS, Durability.RELAXED)
    raw = confluent_kafka.Producer(config.properties())
    values = [_VALUE] * _BATCH
    with Producer(config) as producer:
        sides = {
            "raw confluent-kafka": lambda: _send_raw(raw, topic, values, batches),
            "millstream.client": lambda: _send(producer, topic, values, batches),
        }
        _compare(session, CLIENT_SEND_BATCH, sides, rounds, _BATCH * batches)
    broker.delete_topic(topic)


@dataclass(frozen=True, slots=True)
class _Taken:
    seconds: float
    cpu_seconds: float


class _Stopwatch:
    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.thread_time()

    def stop(self) -> _Taken:
        return _Taken(time.perf_counter() - self._began, time.thread_time() - self._cpu_began)


def _send_raw(producer: confluent_kafka.Producer, topic: str, values: list[bytes], batches: int) -> _Taken:
    watch = _Stopwatch()
    for _ in range(batches):
        stored: list[tuple[int | None, int | None]] = []

        def delivered(
            error: confluent_kafka.KafkaError | None,
            message: confluent_kafka.Message,
            stored: list[tuple[int | None, int | None]] = stored,
        ) -> None:
            if error is not None:
                raise ClientFailedError(str(error))
            stored.append((message.partition(), message.offset()))

        for value in values:
            producer.produce(topic, value, on_delivery=delivered)
        while len(stored) < len(values):
            producer.poll(0.1)
    return watch.stop()


def _send(producer: Producer, topic: str, values: list[bytes], batches: int) -> _Taken:
    watch = _Stopwatch()
    for _ in range(batches):
        results = producer.send_batch([ProducerRecord(topic, value) for value in values])
        if len(results) != len(values):
            raise ClientFailedError(f"{len(results)} results for {len(values)} messages")
    return watch.stop()


def _run_consumers(session: Session, broker: Millstream, rounds: int, batches: int) -> None:
    count = _BATCH * batches
    topic = session.unique("client")
    broker.create_topic(topic, _PARTITIONS, Durability.RELAXED)
    with Producer(ProducerConfig(bootstrap_servers=broker.bootstrap)) as producer:
        for number in range(batches):
            producer.send_batch(
                ProducerRecord(topic, _VALUE, partition=number % _PARTITIONS) for _ in range(_BATCH)
            )
    config = ConsumerConfig(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        max_poll_records=_POLL_RECORDS,
    )
    sides = {
        "raw confluent-kafka": lambda: _poll_raw(config.properties(), topic, count),
        "millstream.client": lambda: _poll(config, topic, count),
    }
    _compare(session, CLIENT_POLL, sides, rounds, count)
    broker.delete_topic(topic)


def _poll_raw(properties: dict[str, Any], topic: str, count: int) -> _Taken:
    consumer = confluent_kafka.Consumer(properties)
    consumer.list_topics(topic, _PATIENCE_S)
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, each, beginning) for each in range(_PARTITIONS)])
    # Connecting and the first fetch are not what is compared.
    read = len(consumer.consume(1, _PATIENCE_S))
    size_bytes = read * len(_VALUE)
    watch = _Stopwatch()
    while read < count:
        for message in consumer.consume(min(_POLL_RECORDS, count - read), _PATIENCE_S):
            if message.error() is not None:
                raise ClientFailedError(str(message.error()))
            size_bytes += len(message.value() or b"")
            read += 1
    taken = watch.stop()
    consumer.close()
    _check_size(size_bytes, count)
    return taken


def _poll(config: ConsumerConfig, topic: str, count: int) -> _Taken:
    with Consumer(config) as consumer:
        consumer.assign([(topic, partition) for partition in range(_PARTITIONS)])
        read = len(consumer.poll(_PATIENCE_S, 1))
        size_bytes = read * len(_VALUE)
        watch = _Stopwatch()
        while read < count:
            for message in consumer.poll(_PATIENCE_S):
                size_bytes += len(message.value or b"")
                read += 1
        taken = watch.stop()
    _check_size(size_bytes, count)
    return taken


def _check_size(size_bytes: int, count: int) -> None:
    if size_bytes != count * len(_VALUE):
        raise ClientFailedError(f"{size_bytes} bytes were read, {count * len(_VALUE)} were sent")


def _compare(
    session: Session, what: str, sides: dict[str, Callable[[], _Taken]], rounds: int, count: int
) -> None:
    """Rounds in turn; the overhead of a round is how much longer ours took than the raw client right next to it."""
    taken: dict[str, list[_Taken]] = {side: [] for side in sides}
    for number in range(rounds):
        order = list(sides.items()) if number % 2 else list(reversed(sides.items()))
        for side, measure in order:
            session.display.step(f"{what}, {side}, round {number + 1} of {rounds}")
            taken[side].append(measure())
    for side, rounds_taken in taken.items():
        rates = [count / each.seconds for each in rounds_taken]
        session.record_figure(NAME, client_name(what, side), "msg/s", rates)
    pairs = list(zip(*taken.values(), strict=True))
    longer = [_percent(ours.seconds, raw.seconds) for raw, ours in pairs]
    session.record_figure(NAME, client_overhead(what), "%", longer)
    dearer = [_percent(ours.cpu_seconds, raw.cpu_seconds) for raw, ours in pairs]
    session.record_figure(NAME, client_cpu_overhead(what), "%", dearer)


def _percent(ours: float, theirs: float) -> float:
    return 100 * (ours / theirs - 1)
