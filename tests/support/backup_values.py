"""Manifests and their parts for unit tests, with as much as a test wants to say."""

from typing import Any

from millstream.backup.manifest import Manifest, PartitionCopy, SegmentCopy, TopicCopy


def segment_of(base: int, end: int, *, epoch: int = 0, checksum: int = 7) -> SegmentCopy:
    """Ten bytes for each record."""
    return SegmentCopy(base, end, 10 * (end - base), checksum, end - base, base, epoch, 1000 + end, -1)


def partition_of(index: int, start: int, end: int, *segments: SegmentCopy, epoch: int = 0) -> PartitionCopy:
    return PartitionCopy(index, start, end, epoch, segments)


def topic_of(name: str, *partitions: PartitionCopy, count: int | None = None, **configs: str) -> TopicCopy:
    return TopicCopy(
        name,
        name.encode().hex().ljust(32, "0")[:32],
        name.startswith("__"),
        1,
        {key.replace("_", "."): value for key, value in configs.items()},
        partitions,
        len(partitions) if count is None else count,
    )


def manifest_of(
    backup_id: str, *topics: TopicCopy, at: int = 1000, until: int | None = None, **fields: Any
) -> Manifest:
    return Manifest(
        backup_id,
        fields.get("cluster_id", "cluster"),
        "localhost:9092",
        "0",
        at,
        at + 1 if until is None else until,
        at + 2,
        0,
        fields.get("broker_configs", {}),
        topics,
    )
