"""The segments of one log, with their total size and record count; and which of them retention may delete."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest

from millstream.config.topic import TopicConfig
from millstream.runtime.disk import Disk
from millstream.storage.open_files import OpenFiles
from millstream.storage.segment import MAX_RELATIVE_OFFSET, Segment, SegmentSummary, find_segment


class Segments(list[Segment]):
    """Oldest first. Changed in place, because the log's reader shares the list."""

    __slots__ = ("damaged", "record_count", "size_bytes")

    def __init__(self, segments: Iterable[Segment] = (), damaged: Iterable[int] = ()) -> None:
        super().__init__(segments)
        self.damaged = set(damaged)
        """Base offsets of segments that are known to be damaged."""
        self.record_count = sum(each.summary.record_count for each in self)
        self.size_bytes = sum(each.summary.size_bytes for each in self)

    def find(self, offset: int) -> int:
        """Index of the last segment that starts at or before `offset`; -1 when all start later."""
        return find_segment(self, offset)

    def replace(self, first: int, end: int, others: Collection[Segment]) -> list[Segment]:
        """Replace segments `first` to `end` (exclusive); returns the old ones."""
        gone = self[first:end]
        self[first:end] = others
        for each in gone:
            self.damaged.discard(each.base_offset)
        self.record_count += sum(each.summary.record_count for each in others)
        self.record_count -= sum(each.summary.record_count for each in gone)
        self.size_bytes += sum(each.summary.size_bytes for each in others)
        self.size_bytes -= sum(each.summary.size_bytes for each in gone)
        return gone

    def write_indexes(self, disk: Disk) -> None:
        """Called when the node stops."""
        for segment in self:
            if segment.index.dirty or segment.time_index.dirty:
                segment.seal()
                segment.index.write(disk, durable=False)
                segment.time_index.write(disk, durable=False)
        if self:
            self[-1].trim()

    def messages_from(self, start_offset: int) -> int:
        """Readable messages from `start_offset` on."""
        if not self:
            return 0
        first = self[0].summary
        # With gaps from compaction, records below the start are not counted exactly.
        is_dense = first.record_count == first.end_offset - first.base_offset
        hidden = start_offset - first.base_offset if is_dense else 0
        return self.record_count - min(max(hidden, 0), first.record_count)

    def is_full(
        self, config: TopicConfig, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch of this size needs a new segment."""
        active = self[-1]
        summary = active.summary
        if max_timestamp >= 0 and summary.first_timestamp >= 0:
            waited = max_timestamp - summary.first_timestamp
        else:
            waited = now_ms - summary.created_ms
        longest = config.segment_ms
        if config.segment_jitter_ms:
            longest -= active.jitter_ms(config.segment_jitter_ms)
        return (
            summary.size_bytes + size_bytes > config.segment_bytes
            or waited > longest
            or last_offset - summary.base_offset > MAX_RELATIVE_OFFSET
            or active.index.is_full(config.segment_index_bytes)
            or active.time_index.is_full(config.segment_index_bytes)
        )


def new_segment(
    files: OpenFiles, directory: str, base_offset: int, config: TopicConfig, now_ms: int
) -> Segment:
    summary = SegmentSummary(base_offset, end_offset=base_offset, created_ms=now_ms)
    segment = Segment(files, directory, summary, stored=False)
    segment.create()
    try:
        segment.file.truncate(0)
        if config.preallocate:
            segment.allocate(config.segment_bytes)
    except OSError:
        # If it stayed, it would look like the log's end while the segment before it grows.
        segment.close()
        with suppress(OSError):
            files.disk.unlink(segment.log_path)
        raise
    return segment


def count_expired(
    segments: Sequence[SegmentSummary],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many segments, from the first on, retention may delete; may include the active one."""
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment, following in zip_longest(segments, segments[1:]):
        is_unused = segment.size_bytes == 0 and following is None
        if is_unused or segment.end_offset > high_watermark:
            break
        # Up to the next segment: offsets at this one's end may be compacted away, and a reader may be there.
        end_offset = segment.end_offset if following is None else following.base_offset
        below_start = end_offset <= log_start_offset
        too_old = config.deletes and 0 <= config.retention_ms < now_ms - _age_from(segment)
        too_much = config.deletes and config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (below_start or too_old or too_much):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


def _age_from(segment: SegmentSummary) -> int:
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
