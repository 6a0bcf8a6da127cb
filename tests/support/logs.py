"""Partition logs on a simulated disk, used as the broker uses them."""

from collections.abc import Iterable, Mapping
from typing import Any

from crc32c import crc32c

from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import (
    CRC_START,
    HEADER_SIZE,
    BatchHeader,
    check_produced,
    iter_batches,
)
from millstream.protocol.records import Record, decode_records, encode_batch
from millstream.runtime.disk import Disk
from millstream.storage.checkpoint import write_checkpoint
from millstream.storage.compaction.clean import run_job
from millstream.storage.compaction.job import CleaningResult, SourceSegment, job_for
from millstream.storage.compaction.swap import apply_swap, commit_swap, finish_swap
from millstream.storage.log import Appended, PartitionLog
from millstream.storage.lookup import OpenLimit, TimestampOffset, batch_for_timestamp
from millstream.storage.open_files import OpenFiles
from millstream.storage.segment import SegmentSummary
from millstream.storage.segment_recovery import RecoveryReport
from millstream.storage.store import LogStore, PartitionSpec
from millstream.testing.clock import ManualClock
from millstream.testing.disk import SimulatedDisk

DATA_DIR = "/data"
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
RELAXED = {"flush_messages": 1_000_000_000}
_PRODUCE_VERSION = 9
_NO_LIMIT = 1 << 40


def batch_of(
    values: Iterable[bytes | None],
    *,
    timestamp_ms: int = NOW_MS,
    key: bytes | None = None,
    producer: tuple[int, int, int] | None = None,
    **options: Any,
) -> bytes:
    """One batch as a producer sends it; `producer` is its id, epoch and base sequence."""
    records = [Record(delta, timestamp_ms, key, value) for delta, value in enumerate(values)]
    if producer is not None:
        options.update(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    return encode_batch(records, **options)


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp` or later."""
    limit, at = OpenLimit(), 0
    while True:
        batch, goes_on_at = batch_for_timestamp(log, timestamp, at)
        if goes_on_at is not None:
            at = goes_on_at
            continue
        if batch is None:
            return None
        found = batch.first_record(timestamp, log.log_start_offset, limit)
        if found is not None:
            return found
        at = batch.header.last_offset + 1


def unreadable(batch: bytes) -> bytes:
    """As a client may send it: the checksum is right, the records are none."""
    data = bytearray(batch)
    data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)
    data[CRC_START - 4 : CRC_START] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
    return bytes(data)


def append(log: PartitionLog, batch: bytes, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    view = memoryview(bytearray(batch))
    return log.append(view, check_produced(view, _PRODUCE_VERSION), leader_epoch, now_ms)


def append_values(log: PartitionLog, *values: bytes, **options: Any) -> Appended:
    return append(log, batch_of(values, **options))


def begun(log: PartitionLog) -> PartitionLog:
    """The same log, after the first flush of its files, before which no topic acknowledges anything."""
    log.roll(NOW_MS)
    flush(log)
    return log


def flush(log: PartitionLog) -> None:
    """What the flusher does, in one thread; an OSError has been reported to the log when it comes out."""
    ticket = log.begin_flush()
    if ticket is None:
        return
    try:
        ticket.run(log.disk)
    except OSError as error:
        log.fail_flush(ticket, error)
        raise
    log.complete_flush(ticket)


def truncate_to(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Cut the log's end, and wait for the disk."""
    truncation = log.begin_truncation(offset, now_ms)
    truncation.prepare(log.disk)
    log.truncate(truncation)
    ticket = log.begin_flush()
    if ticket is not None:
        try:
            ticket.run(log.disk)
        except OSError as error:
            raise log.fail_flush(ticket, error) from error
        log.complete_flush(ticket)


def compact(log: PartitionLog, now_ms: int = NOW_MS) -> None:
    """What the cleaner does, in one process and one thread."""
    disk, result = log.disk, cleaned(log, now_ms)
    for group in result.groups if result is not None else ():
        number = log.place.begin_rewrite(group.sources)
        flush(log)
        commit_swap(disk, log.directory, group.sources)
        apply_swap(disk, log.directory, group.sources)
        summary = SegmentSummary(
            group.base_offset,
            group.size_bytes,
            group.end_offset,
            group.record_count,
            group.first_timestamp,
            group.max_timestamp,
            group.offset_of_max_timestamp,
            number=number,
        )
        log.replace_segments(group.sources, summary)
        finish_swap(disk, log.directory, group.sources)
    if result is not None:
        log.cleaned_offset = result.first_dirty_offset


def cleaned(log: PartitionLog, now_ms: int = NOW_MS) -> CleaningResult | None:
    """The cleaner's new segments, not put in place yet; None where there is nothing to clean."""
    sources = tuple(
        SourceSegment(s.base_offset, s.end_offset, s.size_bytes, s.max_timestamp)
        for s in (segment.summary for segment in log.segments[: log.cleanable_count])
    )
    if not sources:
        return None
    job = job_for(
        log.config,
        directory=log.directory,
        segments=sources,
        first_dirty_offset=log.cleaned_offset,
        limit_offset=log.flushed_offset,
        log_end_offset=log.log_end_offset,
        now_ms=now_ms,
        last_batches=log.producers.last_offsets(),
    )
    return run_job(log.disk, job)


def new_log(
    disk: Disk | None = None, *, directory: str = f"{DATA_DIR}/topics/t/partition-0", **config: Any
) -> PartitionLog:
    files = OpenFiles(disk or SimulatedDisk(), 100)
    return PartitionLog(files, directory, TOPIC_ID, TopicConfig(**config))


def read_batches(
    log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20
) -> list[tuple[BatchHeader, bytes]]:
    """Everything from `offset` to the end, fetched as a consumer does."""
    offset = log.log_start_offset if offset is None else offset
    found: list[tuple[BatchHeader, bytes]] = []
    while offset < log.log_end_offset:
        data, next_offset = log.read(offset, max_bytes, log.log_end_offset)
        if next_offset == offset:
            break
        found += [(header, bytes(data[at : at + header.size_bytes])) for at, header in iter_batches(data)]
        offset = next_offset
    return found


def read_records(log: PartitionLog, offset: int | None = None) -> list[Record]:
    start = log.log_start_offset if offset is None else offset
    return [
        record
        for _, data in read_batches(log, offset)
        for record in decode_records(data, _NO_LIMIT)
        if record.offset >= start
    ]


def read_values(log: PartitionLog, offset: int | None = None) -> list[bytes | None]:
    return [record.value for record in read_records(log, offset)]


class Store:
    """All logs of a data directory over restarts: kills, losses of power and clean stops."""

    committed: int | None = None
    """Up to where other nodes have the logs too; None where no other keeps them."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        topics: Mapping[str, TopicConfig] | None = None,
        *,
        max_open_files: int = 100,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = ManualClock(NOW_MS)
        self.topics = dict(topics or {"t": TopicConfig()})
        self.topic_ids = {name: bytes([number]) * 16 for number, name in enumerate(self.topics, 1)}
        self.max_open_files = max_open_files
        self.reports: dict[str, RecoveryReport] = {}
        self.open()

    def open(self) -> "Store":
        self.store = LogStore(self.disk, self.clock, DATA_DIR, self.max_open_files)
        self.store.lock()
        self.reports = {}
        self.store.load(self.specs(), lambda report: self.reports.update({report.directory: report}))
        return self

    def specs(self) -> list[PartitionSpec]:
        return [
            PartitionSpec(name, 0, self.topic_ids[name], config, committed=self.committed)
            for name, config in self.topics.items()
        ]

    def log(self, topic: str = "t") -> PartitionLog:
        return self.store.logs[topic, 0]

    def report(self, topic: str = "t") -> RecoveryReport:
        return self.reports[self.log(topic).directory]

    def checkpoint(self) -> None:
        entries = self.store.checkpoint()
        write_checkpoint(self.disk, DATA_DIR, entries)
        self.store.checkpoint_written(entries)

    def move_away_and_back(self, topic: str = "t") -> None:
        """The partition goes to other nodes and comes back empty; what was here is removed."""
        (spec,) = (each for each in self.specs() if each.topic == topic)
        self.store.remove(topic, 0)
        self.store.create(spec)

    def kill(self) -> "Store":
        self.disk.restart()
        return self.open()

    def lose_power(self, **options: Any) -> "Store":
        self.disk.restart(power_loss=True, **options)
        return self.open()

    def stop_and_start(self) -> "Store":
        self.store.close()
        self.disk.restart()
        return self.open()
