"""Reads the segments to clean."""

from collections.abc import Iterator

from millstream.protocol.record_batch import BatchHeader, CorruptBatch
from millstream.protocol.records import InvalidRecordsError
from millstream.runtime.disk import Disk
from millstream.storage.compaction.job import CleaningJob, SourceSegment
from millstream.storage.scan import scan_batches


class UncleanableSegment(Exception):
    """A segment is damaged or unreadable, so its partition must not be cleaned."""

    def __init__(self, path: str, position: int, message: str) -> None:
        super().__init__(f"{path} at byte {position}: {message}")
        self.path = path
        self.position = position
        self.message = message


def log_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}.log"


def sources_of(job: CleaningJob) -> tuple[SourceSegment, ...]:
    """The job's segments that lie wholly below its limit."""
    return tuple(segment for segment in job.segments if segment.end_offset <= job.limit_offset)


def read_segment(
    disk: Disk, directory: str, segment: SourceSegment, *, end: int | None = None, verify: bool = True
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each batch; `UncleanableSegment` at the first damaged one.

    Records are not checked: the caller handles `InvalidRecordsError`.
    """
    path = log_path(directory, segment.base_offset)
    file = disk.open(path, read_only=True)
    next_offset = segment.base_offset
    try:
        size = segment.size_bytes if end is None else end
        for position, header, data in scan_batches(file, 0, size, verify=verify):
            # The checksum does not cover the base offset.
            if not next_offset <= header.base_offset <= header.last_offset < segment.end_offset:
                wanted = f"{next_offset} to {segment.end_offset - 1}"
                raise UncleanableSegment(
                    path, position, f"offset {header.base_offset} stands where one of {wanted} belongs"
                )
            next_offset = header.last_offset + 1
            yield position, header, data
    except CorruptBatch as error:
        raise UncleanableSegment(path, error.position, error.message) from None
    finally:
        file.close()


def uncleanable(
    directory: str, segment: SourceSegment, position: int, error: InvalidRecordsError
) -> UncleanableSegment:
    return UncleanableSegment(log_path(directory, segment.base_offset), position, error.message)
