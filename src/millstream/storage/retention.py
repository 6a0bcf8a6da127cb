"""Which segments have outlived their topic's limits. A pure decision over what is known of the segments."""

from collections.abc import Sequence
from itertools import zip_longest

from millstream.config.topic import TopicConfig
from millstream.storage.segment import SegmentSummary


def count_expired(
    segments: Sequence[SegmentSummary],
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many segments from the first on may go; the last one, which is being written, may be among them."""
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment, following in zip_longest(segments, segments[1:]):
        is_unused = segment.size_bytes == 0 and following is None
        if is_unused or segment.end_offset > high_watermark:
            break
        # Up to the next segment: offsets at this one's end may have been compacted away, and a reader may be there.
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
