"""Jobs for the cleaning process and their results, exchanged as JSON."""

import sys

import msgspec

from millstream.config.topic import TopicConfig

DEDUPE_BUFFER_BYTES = 128 << 20
# How much of a batch is unpacked: more than producers may send to a compacted topic, as a topic may turn compacted.
UNPACK_LIMIT_BYTES = 256 << 20
UNPACK_LIMIT_RECORDS = 2_000_000


class SourceSegment(msgspec.Struct, frozen=True):
    """A sealed segment."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int = -1


class AbortedTransaction(msgspec.Struct, frozen=True):
    """Records of `producer_id` in [first_offset, last_offset] were never committed."""

    producer_id: int
    first_offset: int
    last_offset: int


class CleaningJob(msgspec.Struct, frozen=True):
    """One partition to clean. Segments come in order, from the log's first; see `cleanable_segments`."""

    directory: str
    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    limit_offset: int
    """High watermark or last stable offset, whichever is lower: nothing at or above it is touched."""
    log_end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    last_batches: dict[int, int] | None = None
    """Last offset of the last batch of each live producer; None: the last one found of every producer."""
    aborted: tuple[AbortedTransaction, ...] = ()
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    unpack_limit_bytes: int = UNPACK_LIMIT_BYTES
    unpack_limit_records: int = UNPACK_LIMIT_RECORDS


class CleanedGroup(msgspec.Struct, frozen=True):
    """`sources` are to be replaced by one segment whose `.cleaned` files are on disk and synced."""

    sources: tuple[int, ...]
    base_offset: int
    end_offset: int
    size_bytes: int
    record_count: int
    first_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int


class CleaningStats(msgspec.Struct, frozen=True):
    bytes_read: int
    bytes_kept: int
    records_read: int
    records_kept: int
    keys: int
    map_full: bool
    """Not all keys fit; the rest of the dirty part is left to the next cleaning."""


class CleaningResult(msgspec.Struct, frozen=True):
    """Groups are in offset order and must be swapped in that order; a segment in no group stays as it is."""

    groups: tuple[CleanedGroup, ...]
    first_dirty_offset: int
    next_delete_horizon_ms: int | None
    """When the next tombstone or marker may be dropped, so that logs without new writes are cleaned then."""
    stats: CleaningStats


class CleaningFailure(msgspec.Struct, frozen=True):
    """Nothing was changed. `position` is -1 when the error has no position in a file."""

    path: str
    position: int
    message: str


class CleaningOutcome(msgspec.Struct, frozen=True):
    result: CleaningResult | None = None
    failure: CleaningFailure | None = None


def job_for(
    config: TopicConfig,
    *,
    directory: str,
    segments: tuple[SourceSegment, ...],
    first_dirty_offset: int,
    limit_offset: int,
    log_end_offset: int,
    now_ms: int,
    last_batches: dict[int, int] | None = None,
    least_unpacked: tuple[int, int] = (0, 0),
) -> CleaningJob:
    """`least_unpacked`: the bytes and records of the largest batch that producers may send, which must be unpacked."""
    largest_bytes, most_records = least_unpacked
    return CleaningJob(
        directory=directory,
        segments=segments,
        first_dirty_offset=first_dirty_offset,
        limit_offset=limit_offset,
        log_end_offset=log_end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        last_batches=last_batches,
        unpack_limit_bytes=max(UNPACK_LIMIT_BYTES, largest_bytes),
        unpack_limit_records=max(UNPACK_LIMIT_RECORDS, most_records),
    )


def worker_command(broker: int) -> tuple[str, ...]:
    """The command of the cleaning process, for the broker with this process id."""
    return (sys.executable, "-m", "millstream.storage.compaction.worker", str(broker))


def encode_job(job: CleaningJob) -> bytes:
    return msgspec.json.encode(job)


def decode_job(data: bytes) -> CleaningJob:
    return msgspec.json.decode(data, type=CleaningJob)


def encode_outcome(outcome: CleaningOutcome) -> bytes:
    return msgspec.json.encode(outcome)


def decode_outcome(data: bytes) -> CleaningOutcome:
    return msgspec.json.decode(data, type=CleaningOutcome)
