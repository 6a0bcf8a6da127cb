"""Metrics of queues, read from their engines at each scrape."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from millstream.observability.metrics import FamilySnapshot, Kind, Registry, Sample

# A scrape reads at most so many on the loop.
MAX_QUEUES = 5_000

_LABELS = ("group", "topic", "partition")


class QueueSample(NamedTuple):
    group: str
    topic: str
    partition: int
    depth: int
    in_flight: int
    oldest_age_seconds: float
    deliveries: int
    redeliveries: int
    accepted: int
    locks_ended: int
    expired: int
    dead_letters: int


class QueuesState(Protocol):
    def samples(self, most: int) -> list[QueueSample]: ...

    @property
    def session_count(self) -> int: ...

    @property
    def session_partition_count(self) -> int: ...

    @property
    def queue_count(self) -> int: ...

    @property
    def stretch_count(self) -> int: ...


_FAMILIES: tuple[tuple[str, Kind, str, str], ...] = (
    ("millstream_queue_depth", Kind.GAUGE, "depth", "Messages that are not settled."),
    ("millstream_queue_in_flight", Kind.GAUGE, "in_flight", "Messages that are out for delivery."),
    (
        "millstream_queue_oldest_age_seconds",
        Kind.GAUGE,
        "oldest_age_seconds",
        "Age of the first message that is not settled.",
    ),
    ("millstream_queue_deliveries_total", Kind.COUNTER, "deliveries", "Messages delivered."),
    (
        "millstream_queue_redeliveries_total",
        Kind.COUNTER,
        "redeliveries",
        "Messages delivered that had been delivered before.",
    ),
    ("millstream_queue_accepted_total", Kind.COUNTER, "accepted", "Messages accepted."),
    ("millstream_queue_locks_ended_total", Kind.COUNTER, "locks_ended", "Messages whose lock ended."),
    ("millstream_queue_expired_total", Kind.COUNTER, "expired", "Messages that expired."),
    (
        "millstream_queue_dead_letters_total",
        Kind.COUNTER,
        "dead_letters",
        "Messages written to a dead-letter topic.",
    ),
)


def watch_queues(registry: Registry, state: QueuesState) -> None:
    registry.collector(lambda: _families(state.samples(MAX_QUEUES)))
    for name, documentation, compute in (
        ("millstream_share_sessions", "Share sessions of Kafka's clients.", lambda: state.session_count),
        (
            "millstream_share_session_partitions",
            "Partitions in share sessions.",
            lambda: state.session_partition_count,
        ),
        ("millstream_queues", "Queues that this node leads.", lambda: state.queue_count),
        (
            "millstream_queue_stretches",
            "Stretches of records that queues tell apart, of all queues.",
            lambda: state.stretch_count,
        ),
    ):
        registry.computed_gauge(name, documentation, compute)


def _families(samples: list[QueueSample]) -> Iterable[FamilySnapshot]:
    for name, kind, field, documentation in _FAMILIES:
        yield FamilySnapshot(
            kind,
            name,
            documentation,
            _LABELS,
            [Sample((each.group, each.topic, str(each.partition)), getattr(each, field)) for each in samples],
        )
