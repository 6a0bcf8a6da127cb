"""Limits of open files and connections, and metrics that show how near a node is to its limits."""

import resource
from typing import NamedTuple

from millstream.broker.handlers.fetch_sessions import FetchSessions
from millstream.broker.partitions.appends import ProducerBounds
from millstream.broker.partitions.registry import Partitions
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.server import Server
from millstream.config.settings import PerformanceSettings
from millstream.observability.logs import get_logger
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
        (
            "millstream_producers_of_one_partition",
            "Idempotent producers of the partition that remembers most of them.",
            lambda: max((len(partition.log.producers) for partition in partitions), default=0),
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


log = get_logger("millstream.node")

_UNLIMITED = 1 << 20
# For everything else: the listener, the quorum's log, threads' wake-up pipes, modules that are imported late.
_RESERVED = 512
_FEWEST_LOG_FILES = 64
_FEWEST_CONNECTIONS = 16


class FileLimits(NamedTuple):
    connections: int
    log_files: int
    most_connections: int
    """The most that the limit of open files allows, whatever the settings ask for."""


def raise_and_share(settings: PerformanceSettings) -> FileLimits:
    """Raise the process's limit as far as allowed and share it out."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return share(_UNLIMITED if hard == resource.RLIM_INFINITY else hard, settings)


def warn_of_few_connections(allowed: int, wanted: int) -> None:
    if allowed < wanted:
        log.warning(
            "connections limited by open files",
            allowed=allowed,
            wanted=wanted,
            advice="raise the limit of open files",
        )


def share(limit: int, settings: PerformanceSettings) -> FileLimits:
    """Connections come first; log files get the rest, because they can be closed and opened again."""
    limit -= min(_RESERVED, limit // 4)
    log_files = settings.max_open_files
    if log_files is None:
        log_files = max(_FEWEST_LOG_FILES, min(limit // 2, limit - settings.max_connections))
    room = max(_FEWEST_CONNECTIONS, limit - log_files)
    return FileLimits(min(settings.max_connections, room), log_files, room)
