"""Metrics of what clients can multiply and the node bounds; connections and groups have theirs elsewhere."""

from millstream.broker.handlers.fetch_sessions import FetchSessions
from millstream.broker.partitions.producer_bounds import ProducerBounds
from millstream.broker.partitions.registry import Partitions
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.server import Server
from millstream.observability.metrics import FamilySnapshot, Kind, Registry, Sample


def watch_limits(
    registry: Registry,
    server: Server,
    partitions: Partitions,
    bounds: ProducerBounds,
    sessions: FetchSessions,
    long_work: LongWork,
) -> None:
    for name, documentation, compute in (
        (
            "millstream_producers",
            "Idempotent producers that are remembered, in all partitions.",
            lambda: sum(len(partition.log.producers) for partition in partitions),
        ),
        ("millstream_fetch_sessions", "Fetch sessions of clients.", lambda: len(sessions)),
        ("millstream_fetch_session_partitions", "Partitions in fetch sessions.", lambda: sessions.partitions),
        (
            "millstream_in_flight_bytes",
            "Memory of requests and replies under way.",
            lambda: server.in_flight_bytes,
        ),
        (
            "millstream_requests_waiting_for_memory",
            "Requests that are not read further before others have given memory back.",
            lambda: server.frames.waiting,
        ),
        ("millstream_addresses", "Addresses that connections come from.", lambda: server.addresses),
        (
            "millstream_long_work_waiting",
            "Requests that take long and wait for a turn of the event loop.",
            lambda: long_work.waiting,
        ),
    ):
        registry.computed_gauge(name, documentation, compute)

    def counters() -> list[FamilySnapshot]:
        return [
            FamilySnapshot(Kind.COUNTER, name, documentation, (), [Sample((), value)])
            for name, documentation, value in (
                (
                    "millstream_producers_evicted_total",
                    "Idle producers that were forgotten to make room.",
                    bounds.evicted,
                ),
                (
                    "millstream_producers_refused_total",
                    "New producers that were refused for lack of room.",
                    bounds.refused,
                ),
                (
                    "millstream_long_work_slices_total",
                    "Turns of the event loop that were given to long work.",
                    long_work.turns,
                ),
            )
        ]

    registry.collector(counters)
