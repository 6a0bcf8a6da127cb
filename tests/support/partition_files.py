"""A partition's files for compaction tests, cleaned and swapped by the real parts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from millstream.protocol.compression import Compression
from millstream.protocol.record_batch import BatchHeader, iter_batches
from millstream.protocol.records import Record, decode_records, encode_batch
from millstream.runtime.disk import Disk, SystemDisk
from millstream.storage.compaction.clean import run_job
from millstream.storage.compaction.job import CleaningJob, CleaningResult, SourceSegment
from millstream.storage.compaction.swap import apply_swap, commit_swap, finish_swap
from millstream.storage.scan import scan_batches

DISK = SystemDisk()
NO_LIMIT = 2**62
RETENTION_MS = 1000


def keyed(offset: int, key: str | None, value: str | None, timestamp_ms: int = 100) -> Record:
    return Record(
        offset,
        timestamp_ms,
        None if key is None else key.encode(),
        None if value is None else value.encode(),
    )


def batch_of(*records: Record, codec: Compression = Compression.NONE, **options: Any) -> bytes:
    return encode_batch(records, codec=codec, base_offset=records[0].offset, **options)


def swap_segments(disk: Disk, directory: str, sources: Sequence[int]) -> None:
    commit_swap(disk, directory, sources)
    apply_swap(disk, directory, sources)
    finish_swap(disk, directory, sources)


class PartitionFiles:
    """Sealed segments in a directory and the offset up to which they have been cleaned."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.segments: list[SourceSegment] = []
        self.first_dirty_offset = 0

    def add(self, *batches: bytes, base_offset: int | None = None, end_offset: int | None = None) -> None:
        """A new segment at the end."""
        data = b"".join(batches)
        headers = [header for _, header, _ in scan_bytes(data)]
        base = headers[0].base_offset if base_offset is None else base_offset
        end = headers[-1].last_offset + 1 if end_offset is None else end_offset
        stem = Path(self.directory) / f"{base:020d}"
        stem.with_suffix(".log").write_bytes(data)
        stem.with_suffix(".index").write_bytes(b"")
        stem.with_suffix(".timeindex").write_bytes(b"")
        newest = max((header.max_timestamp for header in headers), default=-1)
        self.segments.append(SourceSegment(base, end, len(data), newest))

    def job(self, **options: Any) -> CleaningJob:
        fields: dict[str, Any] = {
            "directory": self.directory,
            "segments": tuple(self.segments),
            "first_dirty_offset": self.first_dirty_offset,
            "limit_offset": NO_LIMIT,
            # As if the active segment had more.
            "log_end_offset": NO_LIMIT,
            "now_ms": 1_000_000,
            "delete_retention_ms": RETENTION_MS,
            "segment_bytes": 1,
            "segment_index_bytes": 10 << 20,
            "index_interval_bytes": 4096,
            "last_batches": {},
        }
        return CleaningJob(**{**fields, **options})

    def clean(self, **options: Any) -> CleaningResult:
        """Run a job and swap its result in, as the broker does."""
        result = run_job(DISK, self.job(**options))
        for group in result.groups:
            swap_segments(DISK, self.directory, group.sources)
            at = next(i for i, each in enumerate(self.segments) if each.base_offset == group.base_offset)
            end_offset = self.segments[at + len(group.sources) - 1].end_offset
            self.segments[at : at + len(group.sources)] = [
                SourceSegment(group.base_offset, end_offset, group.size_bytes, group.max_timestamp)
            ]
        self.first_dirty_offset = result.first_dirty_offset
        return result

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        return [
            (header, bytes(data))
            for segment in self.segments
            for header, data in read_log(f"{self.directory}/{segment.base_offset:020d}.log")
        ]

    def records(self) -> list[Record]:
        return [record for _, data in self.batches() for record in decode_records(data, NO_LIMIT)]

    def summary(self) -> list[tuple[int, str | None, str | None]]:
        return [(record.offset, _text(record.key), _text(record.value)) for record in self.records()]

    def names(self) -> list[str]:
        return sorted(DISK.list_dir(self.directory))

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in Path(self.directory).iterdir()}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def read_log(path: str) -> Iterator[tuple[BatchHeader, memoryview]]:
    file = DISK.open(path, read_only=True)
    try:
        for _, header, data in scan_batches(file, 0, file.size()):
            yield header, data
    finally:
        file.close()


def scan_bytes(data: bytes) -> Sequence[tuple[int, BatchHeader, memoryview]]:
    view = memoryview(data)
    return [(at, header, view[at : at + header.size_bytes]) for at, header in iter_batches(view)]
