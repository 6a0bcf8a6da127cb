"""Rewrites the segments of one partition into new files, without touching the existing ones."""

from collections.abc import Sequence

from millstream.protocol.record_batch import BatchHeader, read_header
from millstream.protocol.records import InvalidRecordsError
from millstream.runtime.disk import Disk
from millstream.storage.compaction.batch_cleaner import Batch, BatchCleaner
from millstream.storage.compaction.cleaned_segment import CLEANED, FILE_KINDS, CleanedSegment
from millstream.storage.compaction.job import (
    CleanedGroup,
    CleaningJob,
    CleaningResult,
    CleaningStats,
    SourceSegment,
)
from millstream.storage.compaction.offset_map import OffsetMap, build_offset_map
from millstream.storage.compaction.source import UncleanableSegment, read_segment, sources_of, uncleanable
from millstream.storage.compaction.swap import SWAP

_MAX_RELATIVE_OFFSET = 2**31 - 1
# A swap renames the files of all of them in one turn of the event loop.
MOST_MERGED = 100


def run_job(disk: Disk, job: CleaningJob) -> CleaningResult:
    """Build the map and rewrite what changes; on any error no `.cleaned` file is left."""
    _refuse_unfinished_swap(disk, job.directory)
    sources = sources_of(job)
    offsets = build_offset_map(disk, job, sources)
    return clean_segments(disk, job, sources, offsets)


def _refuse_unfinished_swap(disk: Disk, directory: str) -> None:
    # Recovery would take new files for those of an earlier swap.
    for name in disk.list_dir(directory):
        if name.endswith(SWAP):
            raise UncleanableSegment(f"{directory}/{name}", -1, "an earlier swap has not been finished")


def clean_segments(
    disk: Disk, job: CleaningJob, sources: Sequence[SourceSegment], offsets: OffsetMap
) -> CleaningResult:
    """Rewrite the segments that begin below the map's end into as few as their sizes allow."""
    to_clean = [segment for segment in sources if segment.base_offset < offsets.end_offset]
    last_batches = (
        job.last_batches if job.last_batches is not None else _find_last_batches(disk, job, to_clean)
    )
    cleaner = BatchCleaner(job, offsets, last_batches)
    groups: list[CleanedGroup] = []
    try:
        for group in group_segments(disk, job, to_clean):
            cleaned = _clean_group(disk, job, group, cleaner)
            if cleaned is not None:
                groups.append(cleaned)
        if groups:
            disk.sync_dir(job.directory)
    except BaseException:
        for each in groups:
            discard_cleaned(disk, job.directory, each.base_offset)
        raise
    replaced = {base_offset for each in groups for base_offset in each.sources}
    untouched = sum(segment.size_bytes for segment in to_clean if segment.base_offset not in replaced)
    return CleaningResult(
        groups=tuple(groups),
        first_dirty_offset=offsets.end_offset,
        next_delete_horizon_ms=cleaner.next_delete_horizon_ms,
        stats=CleaningStats(
            bytes_read=sum(segment.size_bytes for segment in to_clean),
            bytes_kept=untouched + sum(each.size_bytes for each in groups),
            records_read=cleaner.records_read,
            records_kept=cleaner.records_kept,
            keys=len(offsets),
            map_full=offsets.full,
        ),
    )


def group_segments(
    disk: Disk, job: CleaningJob, segments: Sequence[SourceSegment]
) -> list[list[SourceSegment]]:
    """Neighbours that fit into one segment even if nothing is dropped from them."""
    groups: list[list[SourceSegment]] = []
    size_bytes = index_bytes = 0
    for segment in segments:
        own_index_bytes = _index_bytes(disk, job.directory, segment)
        size_bytes += segment.size_bytes
        index_bytes += own_index_bytes
        if (
            groups
            and size_bytes <= job.segment_bytes
            and index_bytes <= job.segment_index_bytes
            and segment.end_offset - groups[-1][0].base_offset <= _MAX_RELATIVE_OFFSET
            and len(groups[-1]) < MOST_MERGED
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes, index_bytes = segment.size_bytes, own_index_bytes
    return groups


def _index_bytes(disk: Disk, directory: str, segment: SourceSegment) -> int:
    """Size of the larger index; a missing one will be rebuilt and counts as 0."""
    stem = f"{directory}/{segment.base_offset:020d}"
    paths = [stem + kind for kind in (".index", ".timeindex")]
    return max(disk.size(path) if disk.exists(path) else 0 for path in paths)


def _clean_group(
    disk: Disk, job: CleaningJob, group: Sequence[SourceSegment], cleaner: BatchCleaner
) -> CleanedGroup | None:
    """One new segment for the group; None when a segment on its own keeps every byte."""
    output: CleanedSegment | None = None
    if len(group) > 1:
        output = _open_output(disk, job, group[0])
    try:
        for segment in group:
            for position, header, data in read_segment(disk, job.directory, segment):
                try:
                    kept = cleaner.clean(header, data)
                except InvalidRecordsError as error:
                    raise uncleanable(job.directory, segment, position, error) from None
                if output is None and kept is not data:
                    output = _open_output(disk, job, segment)
                    _copy(disk, job, segment, position, output)
                if output is not None and kept is not None:
                    output.append(_header_of(kept, header, data), kept)
        return output.finish(tuple(segment.base_offset for segment in group)) if output else None
    except BaseException:
        if output is not None:
            output.discard()
        raise


def _open_output(disk: Disk, job: CleaningJob, first: SourceSegment) -> CleanedSegment:
    return CleanedSegment(disk, job.directory, first.base_offset, job.index_interval_bytes)


def _copy(disk: Disk, job: CleaningJob, segment: SourceSegment, end: int, output: CleanedSegment) -> None:
    """Copy the unchanged batches before the first change, which were not written so far."""
    for _, header, data in read_segment(disk, job.directory, segment, end=end, verify=False):
        output.append(header, data)


def _header_of(kept: Batch, header: BatchHeader, data: memoryview) -> BatchHeader:
    return header if kept is data else read_header(kept)


def _find_last_batches(disk: Disk, job: CleaningJob, segments: Sequence[SourceSegment]) -> dict[int, int]:
    return {
        header.producer_id: header.last_offset
        for segment in segments
        for _, header, _ in read_segment(disk, job.directory, segment, verify=False)
        if header.producer_id >= 0
    }


def discard_cleaned(disk: Disk, directory: str, base_offset: int) -> None:
    """Remove the files of a group that will not be swapped in."""
    for kind in FILE_KINDS:
        disk.unlink(f"{directory}/{base_offset:020d}{kind}{CLEANED}")
