"""Dumps a partition's files as rows.

A file is read as it is, even while a node is writing it. At the first violation of its format a `Corruption` row
gives the byte, and ends the dump.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from millstream.protocol.checksum import crc32c
from millstream.protocol.compression import Compression
from millstream.protocol.errors import KafkaError
from millstream.protocol.record_batch import DELETE_HORIZON_BIT, BatchHeader, CorruptBatch
from millstream.protocol.records import Headers, InvalidRecordsError, iter_records
from millstream.runtime.disk import Disk, File
from millstream.storage.index import OffsetIndex, TimeIndex
from millstream.storage.layout import EPOCHS_FILE
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.producer_state import (
    SNAPSHOT_CHECKED_FROM,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEAD,
    SNAPSHOT_VERSION,
)
from millstream.storage.scan import scan_batches

UNPACK_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class BatchRow:
    kind: ClassVar[str] = "batch"
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    codec: str
    timestamp_type: str
    base_timestamp: int | None
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    crc: int


@dataclass(frozen=True, slots=True)
class RecordRow:
    kind: ClassVar[str] = "record"
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class IndexRow:
    kind: ClassVar[str] = "index"
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexRow:
    kind: ClassVar[str] = "time index"
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProducerRow:
    kind: ClassVar[str] = "producer"
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


@dataclass(frozen=True, slots=True)
class LeaderEpochRow:
    kind: ClassVar[str] = "leader epoch"
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class Corruption:
    kind: ClassVar[str] = "corruption"
    path: str
    position: int
    message: str


Row = BatchRow | RecordRow | IndexRow | TimeIndexRow | ProducerRow | LeaderEpochRow | Corruption


class UnknownFileKind(ValueError):
    """The name is not that of a partition's file."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is none of the files that can be shown: "
            f"name a .log, .index, .timeindex or .snapshot file or a {EPOCHS_FILE}"
        )


def dump_file(disk: Disk, path: str, *, records: bool = False) -> Iterator[Row]:
    """The rows of one file; with `records`, each batch of a log is followed by its records.

    Raises UnknownFileKind at once, and OSError when the file cannot be read.
    """
    name = path.rpartition("/")[2]
    # Files that are being replaced or removed have an extra suffix behind their kind.
    for suffix in (".cleaned", ".deleted"):
        name = name.removesuffix(suffix)
    if name == EPOCHS_FILE:
        return _leader_epochs(disk, path)
    stem, _, kind = name.partition(".")
    if kind == "log":
        return _log(disk, path, records)
    if kind == "snapshot":
        return _snapshot(disk, path)
    # Index entries count from the base offset in the file's name.
    if kind == "index" and stem.isdecimal():
        return _index(disk, path, int(stem))
    if kind == "timeindex" and stem.isdecimal():
        return _time_index(disk, path, int(stem))
    raise UnknownFileKind(path)


def _log(disk: Disk, path: str, records: bool) -> Iterator[Row]:
    file = disk.open(path, read_only=True)
    try:
        yield from _batches(file, path, records)
    finally:
        file.close()


def _batches(file: File, path: str, records: bool) -> Iterator[Row]:
    next_offset = 0
    try:
        for position, header, data in scan_batches(file, 0, file.size()):
            if header.base_offset < next_offset:
                yield Corruption(path, position, f"offset {header.base_offset} follows {next_offset - 1}")
                return
            next_offset = header.last_offset + 1
            yield _batch_row(position, header)
            if records:
                try:
                    for each in iter_records(data, UNPACK_LIMIT_BYTES):
                        yield RecordRow(each.offset, each.timestamp_ms, each.key, each.value, each.headers)
                except InvalidRecordsError as error:
                    yield Corruption(path, position, error.message)
                    return
    except CorruptBatch as error:
        yield Corruption(path, error.position, error.message)


def _batch_row(position: int, header: BatchHeader) -> BatchRow:
    has_horizon = bool(header.attributes & DELETE_HORIZON_BIT)
    known = header.codec <= Compression.ZSTD
    return BatchRow(
        position=position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        leader_epoch=header.leader_epoch,
        codec=Compression(header.codec).name.lower() if known else str(header.codec),
        timestamp_type="LogAppendTime" if header.log_append_time else "CreateTime",
        base_timestamp=None if has_horizon else header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.base_timestamp if has_horizon else None,
        crc=header.crc,
    )


def _entries(disk: Disk, path: str, entry: struct.Struct) -> Iterator[tuple[int, tuple[Any, ...] | None]]:
    """Position and content of each entry; None in place of a last one that is cut short."""
    data = disk.read(path)
    whole = len(data) - len(data) % entry.size
    yield from zip(range(0, whole, entry.size), entry.iter_unpack(data[:whole]), strict=True)
    if whole < len(data):
        yield whole, None


def _index(disk: Disk, path: str, base_offset: int) -> Iterator[Row]:
    previous = (-1, -1)
    for position, pair in _entries(disk, path, OffsetIndex.entry):
        if pair is None:
            yield Corruption(path, position, "the last entry is cut short")
            return
        if pair[0] <= previous[0] or pair[1] <= previous[1]:
            what = f"offset {base_offset + pair[0]} at position {pair[1]}"
            yield Corruption(path, position, f"{what} does not come after the entry before")
            return
        previous = pair
        yield IndexRow(base_offset + pair[0], pair[1])


def _time_index(disk: Disk, path: str, base_offset: int) -> Iterator[Row]:
    previous = (-(2**63), -1)
    for position, pair in _entries(disk, path, TimeIndex.entry):
        if pair is None:
            yield Corruption(path, position, "the last entry is cut short")
            return
        # Kafka repeats the last entry when it seals a segment.
        if pair[0] < previous[0] or pair[1] < previous[1]:
            what = f"time {pair[0]} of offset {base_offset + pair[1]}"
            yield Corruption(path, position, f"{what} does not come after the entry before")
            return
        previous = pair
        yield TimeIndexRow(pair[0], base_offset + pair[1])


def _snapshot(disk: Disk, path: str) -> Iterator[Row]:
    data = disk.read(path)
    if len(data) < SNAPSHOT_HEAD.size:
        yield Corruption(path, 0, f"{len(data)} bytes are too few for a producer snapshot")
        return
    version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        yield Corruption(path, 0, f"snapshot version {version} is unknown, expected {SNAPSHOT_VERSION}")
        return
    if crc != crc32c(memoryview(data)[SNAPSHOT_CHECKED_FROM:]):
        yield Corruption(path, 2, "the snapshot fails its checksum")
        return
    if len(data) != SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size:
        message = f"the snapshot counts {count} producers in {len(data)} bytes"
        yield Corruption(path, SNAPSHOT_CHECKED_FROM, message)
        return
    for fields in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size :]):
        yield ProducerRow(*fields)


def _leader_epochs(disk: Disk, path: str) -> Iterator[Row]:
    try:
        entries = LeaderEpochs.decode(disk.read(path), path).entries
    except KafkaError as error:
        yield Corruption(path, 0, error.message)
        return
    for epoch, start_offset in entries:
        yield LeaderEpochRow(epoch, start_offset)
