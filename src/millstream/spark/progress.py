"""The lag of a streaming query, from Spark's own progress report.

Spark's JVM sources report lag as metrics, which a Python source cannot; but both offsets are in the report.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Records in the cluster that the query has not read yet, by topic and partition."""

    by_partition: Mapping[tuple[str, int], int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def max_offsets_behind_latest(self) -> int:
        return max(self.by_partition.values(), default=0)

    @property
    def min_offsets_behind_latest(self) -> int:
        return min(self.by_partition.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        return self.total / len(self.by_partition) if self.by_partition else 0.0


def lag_of(progress: Mapping[str, Any]) -> SourceLag:
    """The lag of all Millstream sources of a query: `lag_of(query.lastProgress)`."""
    behind: dict[tuple[str, int], int] = {}
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for place, offset in latest.items():
            behind[place] = max(offset - end.get(place, 0), 0)
    return SourceLag(behind)


def _offsets(report: Any) -> dict[tuple[str, int], int]:
    if isinstance(report, str):
        try:
            report = json.loads(report)
        except ValueError:
            return {}
    if not isinstance(report, Mapping):
        return {}
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in report.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
    }
