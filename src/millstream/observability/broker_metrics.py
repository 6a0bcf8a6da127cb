"""The metrics of a broker: its own counters, and values read from its state at each scrape."""

import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from millstream import __version__
from millstream.observability.metrics import (
    Counter,
    Family,
    FamilySnapshot,
    Gauge,
    Histogram,
    Kind,
    Registry,
    Sample,
)

_PARTITION_LABELS = ("topic", "partition")


class PartitionSample(NamedTuple):
    """One partition of this broker at the moment of the scrape."""

    topic: str
    partition: int
    online: bool
    size_bytes: int
    messages: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    is_leader: bool = True
    missing_replicas: int = 0
    """For a partition led here: assigned replicas that are not in sync."""


class BrokerState(Protocol):
    """The broker's state as each scrape reads it."""

    def partition_samples(self) -> Iterable[PartitionSample]: ...

    def purgatory_sizes(self) -> Mapping[str, int]:
        """Waiting requests by kind: `{"produce": 3, "fetch": 120}`."""
        ...

    def disk_free_bytes(self) -> int: ...


class MessageCounters:
    """Messages appended, by topic."""

    def __init__(self, family: Family[Counter]) -> None:
        self._family = family
        self._by_topic: dict[str, Counter] = {}

    def count(self, topic: str, messages: int) -> None:
        counter = self._by_topic.get(topic)
        if counter is None:
            counter = self._by_topic[topic] = self._family.labels(topic)
        counter.value += messages

    def forget(self, topic: str) -> None:
        """Drop the series of a deleted topic."""
        self._by_topic.pop(topic, None)
        self._family.remove(topic)


class BrokerMetrics(msgspec.Struct, frozen=True):
    """Counters the broker writes to. Look children of families up once, not per request."""

    registry: Registry
    requests: Family[Counter]
    request_errors: Family[Counter]
    request_duration: Family[Histogram]
    bytes_in: Counter
    bytes_out: Counter
    messages_in: MessageCounters
    produce_requests: Counter
    fetch_requests: Counter
    connections: Gauge
    connections_accepted: Counter
    connections_rejected: Family[Counter]
    log_flush_duration: Histogram
    corrupt_batches: Counter
    replicated_bytes: Counter
    recovery_cuts: Counter
    repaired_segments: Counter
    storage_errors: Family[Counter]

    @classmethod
    def create(cls, registry: Registry | None = None) -> "BrokerMetrics":
        new = registry or Registry()
        info = new.gauges("millstream_build_info", "What runs here; always 1.", "version", "python")
        info.labels(__version__, sys.version.split()[0]).value = 1
        return cls(
            registry=new,
            requests=new.counters("millstream_requests_total", "Requests, by Kafka API.", "api"),
            request_errors=new.counters(
                "millstream_request_errors_total", "Errors in replies, by API and error name.", "api", "error"
            ),
            request_duration=new.histograms(
                "millstream_request_duration_seconds", "From a whole request to its reply, by API.", "api"
            ),
            bytes_in=new.counter("millstream_bytes_in_total", "Bytes received from clients."),
            bytes_out=new.counter("millstream_bytes_out_total", "Bytes sent to clients."),
            messages_in=MessageCounters(
                new.counters("millstream_messages_in_total", "Messages appended, by topic.", "topic")
            ),
            produce_requests=new.counter("millstream_produce_requests_total", "Produce requests."),
            fetch_requests=new.counter("millstream_fetch_requests_total", "Fetch requests."),
            connections=new.gauge("millstream_connections", "Connections open now."),
            connections_accepted=new.counter(
                "millstream_connections_accepted_total", "Connections accepted."
            ),
            connections_rejected=new.counters(
                "millstream_connections_rejected_total", "Connections closed at once, by limit.", "reason"
            ),
            log_flush_duration=new.histogram("millstream_log_flush_duration_seconds", "Time of an fsync."),
            corrupt_batches=new.counter(
                "millstream_corrupt_batches_total", "Record batches that were damaged."
            ),
            replicated_bytes=new.counter(
                "millstream_replicated_bytes_total", "Bytes of records fetched from leaders."
            ),
            recovery_cuts=new.counter(
                "millstream_recovery_cuts_total",
                "Logs whose end could not be read after an unclean stop, and was cut.",
            ),
            repaired_segments=new.counter(
                "millstream_repaired_segments_total", "Damaged segments fetched again from another replica."
            ),
            storage_errors=new.counters(
                "millstream_storage_errors_total", "Failures of the disk, by operation.", "operation"
            ),
        )

    def watch(self, state: BrokerState) -> None:
        """Read partitions, purgatory and disk space from `state` at every scrape."""
        self.registry.collector(lambda: _partition_families(list(state.partition_samples())))
        self.registry.collector(lambda: [_purgatory_family(state.purgatory_sizes())])
        self.registry.computed_gauge(
            "millstream_disk_free_bytes", "Room left on the data directory's disk.", state.disk_free_bytes
        )


def _partition_families(partitions: list[PartitionSample]) -> Iterable[FamilySnapshot]:
    labels = [(each.topic, str(each.partition)) for each in partitions]
    offline = sum(not each.online for each in partitions)
    yield _gauge("millstream_partitions", "Partitions on this node.", [Sample((), len(partitions))])
    yield _gauge("millstream_offline_partitions", "Partitions that failed.", [Sample((), offline)])
    led = sum(each.is_leader for each in partitions)
    yield _gauge("millstream_leader_partitions", "Partitions that this node leads.", [Sample((), led)])
    short = sum(each.missing_replicas > 0 for each in partitions)
    yield _gauge(
        "millstream_under_replicated_partitions",
        "Partitions led here of which a replica is not in sync.",
        [Sample((), short)],
    )
    for name, documentation, values in (
        ("millstream_log_size_bytes", "Size of the log on disk.", [each.size_bytes for each in partitions]),
        ("millstream_log_messages", "Messages in the log.", [each.messages for each in partitions]),
        ("millstream_log_start_offset", "First offset kept.", [each.log_start_offset for each in partitions]),
        ("millstream_log_end_offset", "Next offset written.", [each.log_end_offset for each in partitions]),
        ("millstream_high_watermark", "Next offset readable.", [each.high_watermark for each in partitions]),
    ):
        yield _gauge(name, documentation, list(map(Sample, labels, values)), _PARTITION_LABELS)


def _purgatory_family(sizes: Mapping[str, int]) -> FamilySnapshot:
    samples = [Sample((kind,), size) for kind, size in sizes.items()]
    return _gauge("millstream_purgatory_size", "Requests that wait for a condition.", samples, ("kind",))


def _gauge(
    name: str, documentation: str, samples: list[Sample], label_names: tuple[str, ...] = ()
) -> FamilySnapshot:
    return FamilySnapshot(Kind.GAUGE, name, documentation, label_names, samples)
