"""Ranges of offsets: limits the size of a micro-batch, and cuts ranges into tasks. Pure arithmetic."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.spark.positions import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets start <= offset < end of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def limited(
    limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """End offsets for about `limit` records, shared in proportion to the partitions' sizes; no partition is starved."""
    sizes = {place: max(end - start.get(place, end), 0) for place, end in latest.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(latest)
    ends = {}
    for place, end in latest.items():
        share = limit * sizes[place] / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        ends[place] = min(end, start.get(place, end) + taken)
    return ends


def cut(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """One range per partition; large ones are cut if the options ask for more or smaller ranges."""
    kept = [each for each in ranges if each.size > 0]
    if max_records is not None:
        kept = [part for each in kept for part in split(each, math.ceil(each.size / max_records))]
    if min_partitions is None or len(kept) >= min_partitions:
        return kept
    total = sum(each.size for each in kept)
    parts: list[OffsetRange] = []
    for each in kept:
        parts += split(each, max(round(each.size / total * min_partitions), 1))
    return parts


def split(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Split a range into non-empty parts whose sizes differ by at most one record."""
    parts = min(parts, whole.size)
    edges = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.partition, start, end) for start, end in itertools.pairwise(edges)]
