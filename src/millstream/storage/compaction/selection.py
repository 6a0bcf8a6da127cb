"""Which partitions to clean next, and how much of each may be cleaned. Pure decisions."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from millstream.config.topic import TopicConfig
from millstream.storage.compaction.job import SourceSegment

P = TypeVar("P")


class Candidate(msgspec.Struct, Generic[P], frozen=True):
    """A partition as the cleaner sees it; dirty is what may be cleaned and has not been."""

    partition: P
    config: TopicConfig
    clean_bytes: int
    dirty_bytes: int
    earliest_dirty_timestamp_ms: int | None = None
    next_delete_horizon_ms: int | None = None

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_overdue(self, now_ms: int) -> bool:
        """Whether `max.compaction.lag.ms` has passed for the oldest dirty record."""
        earliest = self.earliest_dirty_timestamp_ms
        if earliest is None or earliest < 0 or not self.dirty_bytes:
            return False
        return now_ms - earliest > self.config.max_compaction_lag_ms

    def has_expired_tombstones(self, now_ms: int) -> bool:
        return self.next_delete_horizon_ms is not None and now_ms >= self.next_delete_horizon_ms


def choose(candidates: Iterable[Candidate[P]], now_ms: int) -> list[P]:
    """Partitions worth cleaning: overdue ones, then the dirtiest, last those that only shed tombstones."""
    chosen: list[tuple[tuple[int, float], P]] = []
    for each in candidates:
        if not each.config.compacts:
            continue
        if each.is_overdue(now_ms):
            chosen.append(((0, -each.dirty_ratio), each.partition))
        elif each.dirty_bytes and each.dirty_ratio > each.config.min_cleanable_dirty_ratio:
            chosen.append(((1, -each.dirty_ratio), each.partition))
        elif each.has_expired_tombstones(now_ms):
            chosen.append(((2, 0.0), each.partition))
    chosen.sort(key=lambda item: item[0])
    return [partition for _, partition in chosen]


def cleanable_segments(
    sealed: Sequence[SourceSegment],
    *,
    first_dirty_offset: int,
    limit_offset: int,
    min_compaction_lag_ms: int,
    now_ms: int,
) -> tuple[SourceSegment, ...]:
    """The sealed segments, from the first, up to one that is not wholly committed or still too young."""
    cleanable: list[SourceSegment] = []
    for segment in sealed:
        if segment.end_offset > limit_offset:
            break
        is_dirty = segment.end_offset > first_dirty_offset
        if is_dirty and min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - min_compaction_lag_ms:
            break
        cleanable.append(segment)
    return tuple(cleanable)


def dirty_bytes(segments: Iterable[SourceSegment], first_dirty_offset: int) -> tuple[int, int]:
    """Clean and dirty bytes of cleanable segments; one with any dirty offset counts as dirty."""
    clean = dirty = 0
    for segment in segments:
        if segment.end_offset > first_dirty_offset:
            dirty += segment.size_bytes
        else:
            clean += segment.size_bytes
    return clean, dirty
