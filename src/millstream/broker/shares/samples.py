"""Metrics of queues, read at each scrape."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.resting import RestingQueue
from millstream.broker.shares.shares import Shares
from millstream.observability.metrics import FamilySnapshot, Kind, Registry, Sample
from millstream.protocol.queue_call import QueueRow
from millstream.runtime.clock import Clock

# What one scrape reads on the loop: queues, and batches and bytes for the ages of messages.
_MOST_QUEUES, _MOST_READS, _MOST_READ_BYTES = 5_000, 500, 16 << 20

_LABELS = ("group", "topic", "partition")
_FAMILIES: tuple[tuple[str, Kind, Callable[[QueueRow], int], str], ...] = (
    ("millstream_queue_depth", Kind.GAUGE, lambda row: row.depth, "Messages that are not settled."),
    (
        "millstream_queue_in_flight",
        Kind.GAUGE,
        lambda row: row.in_flight,
        "Messages that are out for delivery.",
    ),
    ("millstream_queue_deliveries_total", Kind.COUNTER, lambda row: row.delivered, "Messages delivered."),
    (
        "millstream_queue_redeliveries_total",
        Kind.COUNTER,
        lambda row: row.redelivered,
        "Messages delivered that had been delivered before.",
    ),
    ("millstream_queue_accepted_total", Kind.COUNTER, lambda row: row.accepted, "Messages accepted."),
    (
        "millstream_queue_locks_ended_total",
        Kind.COUNTER,
        lambda row: row.locks_ended,
        "Messages whose lock ended.",
    ),
    ("millstream_queue_expired_total", Kind.COUNTER, lambda row: row.expired, "Messages that expired."),
    (
        "millstream_queue_dead_letters_total",
        Kind.COUNTER,
        lambda row: row.dead_letters,
        "Messages written to a dead-letter topic.",
    ),
)
_OLDEST = "millstream_queue_oldest_age_seconds", "Age of the first message that is not settled."


class QueueSamples:
    def __init__(self, shares: Shares, clock: Clock) -> None:
        self._shares = shares
        self._clock = clock
        self._first = 0

    def watch(self, registry: Registry, sessions: Callable[[], tuple[int, int]]) -> None:
        """`sessions` returns the number of share sessions, and of their partitions."""
        shares = self._shares
        registry.collector(self.families)
        for name, documentation, compute in (
            ("millstream_share_sessions", "Share sessions of Kafka's clients.", lambda: sessions()[0]),
            (
                "millstream_share_session_partitions",
                "Partitions in share sessions.",
                lambda: sessions()[1],
            ),
            ("millstream_queues", "Queues in memory: those that are in use.", lambda: len(shares)),
            (
                "millstream_queue_stretches",
                "Stretches of records that queues tell apart, of all queues.",
                lambda: sum(queue.engine.run_count for queue in shares),
            ),
        ):
            registry.computed_gauge(name, documentation, compute)

    def families(self) -> Iterable[FamilySnapshot]:
        rows, now_ms = self._rows(), self._clock.now_ms()
        labels = [(row.group, row.topic, str(row.partition)) for row in rows]
        for name, kind, value, documentation in _FAMILIES:
            samples = [Sample(label, value(row)) for label, row in zip(labels, rows, strict=True)]
            yield FamilySnapshot(kind, name, documentation, _LABELS, samples)
        ages = [max(now_ms - row.oldest_ms, 0) / 1000 if row.oldest_ms >= 0 else 0.0 for row in rows]
        name, documentation = _OLDEST
        samples = [Sample(label, age) for label, age in zip(labels, ages, strict=True)]
        yield FamilySnapshot(Kind.GAUGE, name, documentation, _LABELS, samples)

    def _rows(self) -> list[QueueRow]:
        found = (each for each in (*self._shares, *self._shares.resting) if each.is_ready)
        queues = list(islice(found, _MOST_QUEUES))
        self._look_at_oldest(queues)
        return [each.row() for each in queues]

    def _look_at_oldest(self, queues: Sequence[LedQueue | RestingQueue]) -> None:
        """As much as one turn of the event loop may read; of very many busy queues, the others follow next time."""
        left, left_bytes = _MOST_READS, _MOST_READ_BYTES
        self._first %= len(queues) or 1
        for queue in (*queues[self._first :], *queues[: self._first]):
            if left <= 0 or left_bytes <= 0:
                break
            self._first += 1
            read = queue.look_at_oldest()
            left -= read > 0
            left_bytes -= read
