"""Which segments have outlived their topic's limits. A pure decision over what is known of the segments."""

from collections.abc import Sequence

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
    for segment in segments:
        if segment.size_bytes == 0 or segment.end_offset > high_watermark:
            break
        below_start = segment.end_offset <= log_start_offset
        too_old = config.deletes and 0 <= config.retention_ms < now_ms - _age_from(segment)
        too_much = config.deletes and config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (below_start or too_old or too_much):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


def _age_from(segment: SegmentSummary) -> int:
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
